"""Endpoints that ignore or race conditions are refused at open, and what is missing is not declared."""

from typing import Any

import pytest

from statebook import BackendUnavailable, Feature, InvalidConfiguration, UnsupportedCapability, plugins as statebook


@pytest.mark.parametrize(("ignores", "reason"), [("if-none-match", "If-None-Match"), ("if-match", "If-Match")])
def test_an_endpoint_that_ignores_a_condition_is_refused_with_the_reason(fresh: Any, ignores: str, reason: str) -> None:
    """Case 36."""
    fresh.ignores = {ignores}
    with pytest.raises(InvalidConfiguration, match=reason) as raised:
        statebook.open_journal(fresh.url())
    assert raised.value.option == "endpoint_url"
    assert fresh.objects == {}


def test_an_endpoint_that_tests_and_then_writes_is_refused_with_the_reason(fresh: Any) -> None:
    """Case 36."""
    fresh.racy_s = 0.05
    with pytest.raises(InvalidConfiguration, match="racing writes"):
        statebook.open_state(fresh.url())
    assert fresh.objects == {}


@pytest.mark.parametrize("fault", ["code 501 NotImplemented", "405"])
def test_an_endpoint_that_does_not_know_conditions_is_refused(fresh: Any, fault: str) -> None:
    fresh.faults = [("PUT", "", fault)]
    with pytest.raises(InvalidConfiguration, match="conditional writes"):
        statebook.open_atomic(fresh.url())


def test_an_endpoint_without_conditional_deletes_declares_no_purge(fresh: Any) -> None:
    fresh.ignores = {"delete"}
    with statebook_storage(fresh) as store:
        assert Feature.PURGE not in store.capabilities.features
        token = store.commit("t/u/a/s/x", None, b"1")
        with pytest.raises(UnsupportedCapability):
            store.delete_head("t/u/a/s/x", token)
        found = store.read_head("t/u/a/s/x")
        assert found is not None
        assert found.token == token


def test_the_probe_races_writers_cleans_up_and_is_run_once_a_bucket_and_process(fresh: Any) -> None:
    with statebook_storage(fresh) as store:
        counted = fresh.counted()
        assert counted["PUT if-none-match"] >= 8
        assert counted["PUT if-match"] >= 8
        assert fresh.objects == {}
        assert Feature.PURGE in store.capabilities.features
    fresh.requests.clear()
    with statebook_storage(fresh), statebook_storage(fresh, "&namespace=other"):
        assert fresh.requests == []


def test_a_refusal_is_not_remembered(fresh: Any) -> None:
    fresh.ignores = {"if-match"}
    with pytest.raises(InvalidConfiguration):
        statebook.open_atomic(fresh.url())
    fresh.ignores = set()
    with statebook_storage(fresh):
        assert fresh.objects == {}


def test_a_409_during_the_probe_decides_nothing(fresh: Any) -> None:
    """Case 45."""
    fresh.faults = [("PUT", "", "409"), ("PUT", "race", "409 after"), ("PUT", "race", "409")]
    with statebook_storage(fresh) as store:
        assert store.commit("t/u/a/s/x", None, b"1")


def test_a_bucket_that_does_not_exist_is_named_with_the_remedy(fresh: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="make it first") as raised:
        statebook.open_journal(fresh.url(bucket="missing"))
    assert raised.value.option == "url"
    assert fresh.objects == {}


@pytest.mark.parametrize("fault", ["403", "code 403 SignatureDoesNotMatch", "code 403 InvalidAccessKeyId"])
def test_denied_access_names_the_option_and_no_secret(fresh: Any, fault: str) -> None:
    fresh.faults = [("PUT", "", fault)] * 50
    with pytest.raises(InvalidConfiguration) as raised:
        statebook.open_journal(fresh.url())
    assert raised.value.option == "access_key_id"
    assert "not-to-be-shown" not in f"{raised.value!r} {raised.value}"
    assert fresh.objects == {}


def test_a_throttled_open_is_unavailable(fresh: Any) -> None:
    fresh.faults = [("PUT", "", "code 503 SlowDown")] * 50
    with pytest.raises(BackendUnavailable):
        statebook.open_journal(fresh.url())


def test_an_endpoint_that_does_not_listen_is_unavailable(fresh: Any) -> None:
    url = fresh.url()
    fresh.close()
    with pytest.raises(BackendUnavailable) as raised:
        statebook.open_journal(url)
    assert "not-to-be-shown" not in f"{raised.value!r} {raised.value}"


def test_facts_for_operators_are_declared(fresh: Any) -> None:
    with statebook_storage(fresh, "&durability=replicated&linger_ms=50") as store:
        capabilities = store.capabilities
        assert capabilities.durability.value == "replicated"
        assert capabilities.durability_setting == "object store acknowledgement"
        assert ("linger_ms", "50") in capabilities.server
        assert ("server", "look-alike") in capabilities.server
        assert ("listing", "byte order") in capabilities.server


def statebook_storage(fresh: Any, options: str = "") -> Any:
    from contextlib import closing

    return closing(statebook.open_atomic(fresh.url(options)))
