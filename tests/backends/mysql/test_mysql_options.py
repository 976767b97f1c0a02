"""URLs and options of `mysql://`: complete, or refused before anything is opened (ERR-6)."""

from typing import Any

import pytest

from statebook.errors import InvalidConfiguration
from statebook.plugins import load_backend

SECRET = "pa:ss@w/rd"
URL = "mysql://me:pa%3Ass%40w%2Frd@db.example:3307/agents"


def test_a_url_becomes_options_with_its_password_decoded_and_shown_nowhere() -> None:
    options: Any = load_backend(URL + "?namespace=n&pool_max=3&ssl_verify=false").options
    assert (options.host, options.port, options.user, options.password) == ("db.example", 3_307, "me", SECRET)
    assert (options.database, options.namespace, options.pool_max, options.ssl_verify) == ("agents", "n", 3, False)
    assert (options.connect_timeout_s, options.read_timeout_s, options.table_prefix) == (5.0, 10.0, "sb_")
    assert SECRET not in repr(options)
    assert SECRET not in str(options)


@pytest.mark.parametrize(
    ("url", "option", "text"),
    [
        ("mysql:///agents", "url", "one server"),
        ("mysql://me@a,b/agents", "url", "one server"),
        ("mysql://db/agents", "url", "a user"),
        ("mysql://me:x@db", "url", "one database"),
        ("mysql://me:x@db/a/b", "url", "one database"),
        ("mysql://me:x@db/a?host=c", "host", "in the URL itself"),
        ("mysql://me:x@db/a?password=c", "password", "in the URL itself"),
        ("mysql://me:x@db/a?colour=red", "colour", "it takes"),
        ("mysql://me:x@db/a?pool_max=0", "pool_max", "greater than or equal to 1"),
        ("mysql://me:x@db/a?read_timeout_s=nan", "read_timeout_s", ""),
        ("mysql://me:x@db/a?lock_timeout_s=10", "lock_timeout_s", "less than read_timeout_s"),
        ("mysql://me:x@db/a?ssl_cert=/c.pem", "ssl_cert", "go together"),
        ("mysql://me:x@db/a?table_prefix=", "table_prefix", "letters, digits and underscores"),
        ("mysql://me:x@db/a?table_prefix=a%60b", "table_prefix", "letters, digits and underscores"),
        ("mysql://me:x@db/a?table_prefix=a%20b", "table_prefix", "letters, digits and underscores"),
        ("mysql://me:x@db/a?table_prefix=%C3%A9", "table_prefix", "letters, digits and underscores"),
    ],
)
def test_what_is_wrong_is_refused_by_name(url: str, option: str, text: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_backend(url)
    assert caught.value.option == option
    assert text in str(caught.value)


def test_a_file_of_tls_that_cannot_be_read_is_named_before_anything_is_sent() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_backend("mysql://me:x@192.0.2.1/a?ssl_ca=/no/such/file.pem").open_state()
    assert caught.value.option == "ssl_ca"
