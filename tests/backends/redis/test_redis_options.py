"""URLs and options: what is refused without a server, by name and with the remedy (ERR-6)."""

import pytest

from statebook.errors import InvalidConfiguration
from statebook.options import StoreUrl
from statebook_backends.redis.options import ClusterOptions, RedissOptions, SentinelOptions, options_of


@pytest.mark.parametrize(
    ("url", "option", "remedy"),
    [
        ("redis:///0", "url", "host:port"),
        ("redis://a,b/0", "url", "redis+cluster://"),
        ("redis://a/one", "db", "number"),
        ("redis://a/0?db=1", "db", "URL itself"),
        ("redis://a/0?wait_replica=1", "wait_replica", "wait_replicas"),
        ("redis://a/0?read_timeout_s=0", "read_timeout_s", "greater than 0"),
        ("redis://a/0?wait_replicas=1&wait_timeout_ms=10000", "wait_timeout_ms", "less than read_timeout_s"),
        ("redis+cluster://a/3", "db", "less than or equal to 0"),
        ("redis+sentinel://a/0", "service", "required"),
    ],
)
def test_a_wrong_url_names_the_option_and_the_remedy(url: str, option: str, remedy: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        options_of(StoreUrl.parse(url))
    assert refused.value.option == option
    assert remedy in str(refused.value)


def test_each_scheme_has_its_own_options() -> None:
    secure = options_of(StoreUrl.parse("rediss://user:p%40ss@host:1/2?tls_verify=false"))
    assert isinstance(secure, RedissOptions)
    assert (secure.uses_tls, secure.db, secure.tls_verify, secure.username) == (True, 2, False, "user")
    watched = options_of(StoreUrl.parse("redis+sentinel://a:1,b:2/0?service=main&tls=true"))
    assert isinstance(watched, SentinelOptions)
    assert (len(watched.hosts), watched.service, watched.uses_tls) == (2, "main", True)
    clustered = options_of(StoreUrl.parse("redis+cluster://a:1,b:2,c:3"))
    assert isinstance(clustered, ClusterOptions)
    assert (len(clustered.hosts), clustered.uses_tls, clustered.scheme) == (3, False, "redis+cluster")


def test_no_text_of_options_shows_a_password() -> None:
    options = options_of(StoreUrl.parse("redis+sentinel://u:hidden@a/0?service=s&sentinel_password=hidden"))
    assert "hidden" not in f"{options!r} {options}"


def test_configuring_needs_no_driver() -> None:
    """Listing and configuring backends imports no client library."""
    import subprocess
    import sys

    program = (
        "import sys; sys.modules['redis'] = None\n"
        "from statebook.plugins import load_backend\n"
        "from statebook.errors import MissingDriver\n"
        "backend = load_backend('redis://host/0')\n"
        "try:\n backend.open_journal()\n"
        "except MissingDriver as error:\n assert 'statebook[redis]' in error.install; print('told')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "told", done.stderr
