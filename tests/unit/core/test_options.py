"""Store URLs and options: every form of the documentation, junk refused, secrets nowhere (ERR-6)."""

from __future__ import annotations

import pickle
import traceback
from typing import ClassVar

import pytest
from hypothesis import given, strategies as st
from pydantic import Field, SecretStr, ValidationError

from statebook import BackendOptions, InvalidConfiguration, StoreUrl
from statebook.options import Host

FORMS = [
    ("memory://", "memory", (), "", ()),
    ("memory://name", "memory", ("name",), "", ()),
    ("file://", "file", (), "", ()),
    ("file:///absolute/dir", "file", (), "/absolute/dir", ()),
    ("file:///with%20space/%C3%A9%2525", "file", (), "/with space/é%25", ()),
    ("sqlite:///relative.db", "sqlite", (), "/relative.db", ()),
    ("sqlite:////absolute/file.db", "sqlite", (), "//absolute/file.db", ()),
    (
        "sqlite:///f.db?namespace=a&busy_timeout_s=5",
        "sqlite",
        (),
        "/f.db",
        (("namespace", "a"), ("busy_timeout_s", "5")),
    ),
    ("redis://localhost", "redis", ("localhost",), "", ()),
    ("redis://127.0.0.1:6379/0", "redis", ("127.0.0.1:6379",), "/0", ()),
    ("rediss://cache.example:6380/1", "rediss", ("cache.example:6380",), "/1", ()),
    ("redis://[::1]:6379/0", "redis", ("[::1]:6379",), "/0", ()),
    ("redis://[fe80::1]", "redis", ("[fe80::1]",), "", ()),
    (
        "redis+sentinel://a:26379,b:26379/0?service=main",
        "redis+sentinel",
        ("a:26379", "b:26379"),
        "/0",
        (("service", "main"),),
    ),
    ("redis+cluster://a:7000,[::1]:7001,c", "redis+cluster", ("a:7000", "[::1]:7001", "c"), "", ()),
    ("mysql://db.example:3306/state", "mysql", ("db.example:3306",), "/state", ()),
    ("s3://bucket/some/prefix", "s3", ("bucket",), "/some/prefix", ()),
    (
        "s3://bucket?endpoint_url=http://127.0.0.1:9000/x",
        "s3",
        ("bucket",),
        "",
        (("endpoint_url", "http://127.0.0.1:9000/x"),),
    ),
    (
        "s3://bucket?endpoint_url=http%3A%2F%2Fh%3A9&empty=",
        "s3",
        ("bucket",),
        "",
        (("endpoint_url", "http://h:9"), ("empty", "")),
    ),
]


@pytest.mark.parametrize(("url", "scheme", "hosts", "path", "query"), FORMS)
def test_every_documented_form_is_read(
    url: str, scheme: str, hosts: tuple[str, ...], path: str, query: tuple[tuple[str, str], ...]
) -> None:
    parsed = StoreUrl.parse(url)
    assert (parsed.scheme, tuple(map(str, parsed.hosts)), parsed.path, parsed.query) == (scheme, hosts, path, query)
    assert (parsed.username, parsed.password) == (None, None)
    assert StoreUrl.parse(parsed.unredacted()) == parsed
    assert StoreUrl.parse(str(parsed)) == parsed  # nothing in it is secret


@pytest.mark.parametrize(
    ("userinfo", "username", "password"),
    [
        ("user:pa55@", "user", "pa55"),
        (":pa55@", None, "pa55"),
        ("user@", "user", None),
        ("user:@", "user", ""),
        ("us%40er:p%3A%2F%40%25%23ss@", "us@er", "p:/@%#ss"),
        ("u:p@ss@", "u", "p@ss"),
        ("u:a:b@", "u", "a:b"),
    ],
)
def test_users_and_passwords_are_percent_decoded(userinfo: str, username: str | None, password: str | None) -> None:
    parsed = StoreUrl.parse(f"mysql://{userinfo}host:3306/db")
    assert (parsed.username, parsed.password) == (username, password)
    assert parsed.hosts == (Host(name="host", port=3306),)
    assert StoreUrl.parse(parsed.unredacted()) == parsed


secret = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(secret, secret, secret)
def test_a_url_goes_to_another_process_unchanged(user: str, password: str, value: str) -> None:
    url = StoreUrl(
        scheme="redis",
        username=user,
        password=password,
        hosts=(Host(name=value, port=1),) if ":" not in value else (),
        path="/" + value,
        query=(("name", value),),
    )
    assert StoreUrl.parse(url.unredacted()) == url
    assert pickle.loads(pickle.dumps(url)) == url


SECRETS = [
    "redis://user:hunter2@h:1/0",
    "redis://:hunter2@h",
    "mysql://u:hunter2@h/d?password=hunter2",
    "s3://b?secret_access_key=hunter2",
    "s3://b?aws_session_token=hunter2&region=eu",
    "s3://b?access_key_id=hunter2",
    "x://h?API_KEY=hunter2",
    "x://h?credentials=hunter2&ssl_passphrase=hunter2",
]


@pytest.mark.parametrize("url", SECRETS)
def test_a_secret_shows_in_no_text(url: str) -> None:
    parsed = StoreUrl.parse(url)
    for text in (str(parsed), repr(parsed), parsed.redacted(), f"{parsed}", f"{[parsed]}"):
        assert "hunter2" not in text
    assert "***" in parsed.redacted()
    assert "hunter2" in parsed.unredacted()


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2/x@host:6379/0",
        "redis://user:hunter2#x@host:6379/0",
        "redis://user:hunter2?x@host:6379/0",
        "mysql://user:hunter2@host:port/db",
        "mysql://user:hunter2@host:70000/db",
        "mysql://user:hunter2@host/db?password=hunter2&password=hunter2",
        "mysql://user:hunter2@host/db?hunter2",
        "mysql://user:hunter2@[::1/db",
        "hunter2",
    ],
)
def test_a_wrong_url_is_refused_and_shows_no_secret_not_even_in_a_traceback(url: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        StoreUrl.parse(url)
    chain = traceback.TracebackException.from_exception(caught.value)
    shown = [str(caught.value), repr(caught.value), "".join(chain.format_exception_only())]
    cause = caught.value.__cause__
    while cause is not None:
        shown.append(str(cause))
        cause = cause.__cause__
    assert not any("hunter2" in text for text in shown)
    assert caught.value.option


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:",
        "memory:/x",
        "://x",
        "1x://h",
        "Memory://x",
        "memory://x#fragment",
        "redis://a,,b",
        "redis://:6379",
        "redis://a:6379,",
        "redis://h:-1",
        "redis://h:1:2",
        "redis://[zz]",
        "redis://[::1]x",
        "memory://x\n",
        "memory://x?&",
        "memory://x?a",
        "memory://x?a=1&a=2",
    ],
)
def test_what_is_no_store_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration):
        StoreUrl.parse(url)


def test_an_option_can_be_set_on_a_url() -> None:
    url = StoreUrl.parse("sqlite:///f.db?namespace=a&x=1")
    assert url.with_option("namespace", "b").query == (("x", "1"), ("namespace", "b"))
    assert url.query == (("namespace", "a"), ("x", "1"))


class AcmeOptions(BackendOptions):
    scheme: ClassVar[str] = "acme"

    port: int = Field(default=7, ge=1)
    timeout_s: float = 1.0
    fast: bool = False
    password: SecretStr | None = None


def test_options_are_converted_from_text_checked_and_frozen() -> None:
    options = AcmeOptions.checked({"port": "9", "timeout_s": "2.5", "fast": "true", "namespace": "n"})
    assert (options.port, options.timeout_s, options.fast, options.namespace) == (9, 2.5, True, "n")
    with pytest.raises(ValidationError):
        options.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"), [("port", "x"), ("port", "0"), ("fast", "maybe"), ("namespace", ""), ("namespace", "n" * 129)]
)
def test_a_wrong_option_is_named_without_its_value(name: str, value: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        AcmeOptions.checked({name: value})
    assert caught.value.option == name
    assert caught.value.backend == "acme"
    assert name in str(caught.value)


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        AcmeOptions.checked({"prot": "1"})
    assert caught.value.option == "prot"
    assert "fast, namespace, password, port, timeout_s" in str(caught.value)
    with pytest.raises(InvalidConfiguration, match="it takes port"):
        AcmeOptions.checked({"prot": "1"}, allowed=("port",))


def test_a_wrong_secret_option_is_refused_without_showing_it() -> None:
    class Strict(BackendOptions):
        scheme: ClassVar[str] = "strict"
        password: int = 0

    with pytest.raises(InvalidConfiguration) as caught:
        Strict.checked({"password": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "hunter2" not in repr(AcmeOptions.checked({"password": "hunter2"}))
