"""Endpoints that ignore or race conditions are refused at open, and what is missing is not declared."""

from typing import Any

import pytest

from statebook import BackendUnavailable, Feature, InvalidConfiguration, UnsupportedCapability, plugins as statebook


@pytest.mark.parametrize(("ignores", "reason"), [("if-none-match", "If-None-Match"), ("if-match", "If-Match")])
def test_an_endpoint_that_ignores_a_condition_is_refused_with_the_reason(
    lookalike: Any, ignores: str, reason: str
) -> None:
    """Case 36."""
    lookalike.ignores = {ignores}
    with pytest.raises(InvalidConfiguration, match=reason) as raised:
        statebook.open_journal(lookalike.url())
    assert raised.value.option == "endpoint_url"
    assert lookalike.objects == {}


def test_an_endpoint_that_tests_and_then_writes_is_refused_with_the_reason(lookalike: Any) -> None:
    """Case 36."""
    lookalike.racy_s = 0.05
    with pytest.raises(InvalidConfiguration, match="racing writes"):
        statebook.open_state(lookalike.url())
    assert lookalike.objects == {}


@pytest.mark.parametrize("fault", ["code 501 NotImplemented", "405"])
def test_an_endpoint_that_does_not_know_conditions_is_refused(lookalike: Any, fault: str) -> None:
    lookalike.faults = [("PUT", "", fault)]
    with pytest.raises(InvalidConfiguration, match="conditional writes"):
        statebook.open_atomic(lookalike.url())


def test_an_endpoint_without_conditional_deletes_declares_no_purge(lookalike: Any) -> None:
    lookalike.ignores = {"delete"}
    with statebook_storage(lookalike) as store:
        assert Feature.PURGE not in store.capabilities.features
        token = store.commit("t/u/a/s/x", None, b"1")
        with pytest.raises(UnsupportedCapability):
            store.delete_head("t/u/a/s/x", token)
        found = store.read_head("t/u/a/s/x")
        assert found is not None
        assert found.token == token


def test_the_probe_races_writers_cleans_up_and_is_run_once_a_bucket_and_process(lookalike: Any) -> None:
    with statebook_storage(lookalike) as store:
        counted = lookalike.counted()
        assert counted["PUT if-none-match"] >= 8
        assert counted["PUT if-match"] >= 8
        assert lookalike.objects == {}
        assert Feature.PURGE in store.capabilities.features
    lookalike.requests.clear()
    with statebook_storage(lookalike), statebook_storage(lookalike, "&namespace=other"):
        assert lookalike.requests == []


def test_a_refusal_is_not_remembered(lookalike: Any) -> None:
    lookalike.ignores = {"if-match"}
    with pytest.raises(InvalidConfiguration):
        statebook.open_atomic(lookalike.url())
    lookalike.ignores = set()
    with statebook_storage(lookalike):
        assert lookalike.objects == {}


def test_a_409_during_the_probe_decides_nothing(lookalike: Any) -> None:
    """Case 45."""
    lookalike.faults = [("PUT", "", "409"), ("PUT", "race", "409 after"), ("PUT", "race", "409")]
    with statebook_storage(lookalike) as store:
        assert store.commit("t/u/a/s/x", None, b"1")


def test_a_bucket_that_does_not_exist_is_named_with_the_remedy(lookalike: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="make it first") as raised:
        statebook.open_journal(lookalike.url(bucket="missing"))
    assert raised.value.option == "url"
    assert lookalike.objects == {}


@pytest.mark.parametrize("fault", ["403", "code 403 SignatureDoesNotMatch", "code 403 InvalidAccessKeyId"])
def test_denied_access_names_the_option_and_no_secret(lookalike: Any, fault: str) -> None:
    lookalike.faults = [("PUT", "", fault)] * 50
    with pytest.raises(InvalidConfiguration) as raised:
        statebook.open_journal(lookalike.url())
    assert raised.value.option == "access_key_id"
    assert "not-to-be-shown" not in f"{raised.value!r} {raised.value}"
    assert lookalike.objects == {}


def test_a_throttled_open_is_unavailable(lookalike: Any) -> None:
    lookalike.faults = [("PUT", "", "code 503 SlowDown")] * 50
    with pytest.raises(BackendUnavailable):
        statebook.open_journal(lookalike.url())


def test_an_endpoint_that_does_not_listen_is_unavailable(lookalike: Any) -> None:
    url = lookalike.url()
    lookalike.close()
    with pytest.raises(BackendUnavailable) as raised:
        statebook.open_journal(url)
    assert "not-to-be-shown" not in f"{raised.value!r} {raised.value}"


def test_facts_for_operators_are_declared(lookalike: Any) -> None:
    with statebook_storage(lookalike, "&durability=replicated&linger_ms=50") as store:
        capabilities = store.capabilities
        assert capabilities.durability.value == "replicated"
        assert capabilities.durability_setting == "object store acknowledgement"
        assert ("linger_ms", "50") in capabilities.server
        assert ("server", "look-alike") in capabilities.server
        assert ("listing", "byte order") in capabilities.server


def statebook_storage(lookalike: Any, options: str = "") -> Any:
    from contextlib import closing

    return closing(statebook.open_atomic(lookalike.url(options)))
