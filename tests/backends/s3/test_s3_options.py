"""URLs and options: what is wrong names the option and the remedy, and secrets show nowhere."""

import pytest

from statebook import InvalidConfiguration, plugins as statebook
from statebook.options import StoreUrl
from statebook_backends.s3.options import S3Options


def options(url: str) -> S3Options:
    return S3Options.from_url(StoreUrl.parse(url))


def test_a_whole_url() -> None:
    made = options(
        "s3://bucket/a/b/?endpoint_url=http%3A%2F%2Fhost%3A9000&region=eu&access_key_id=k&secret_access_key=s%2F1"
        "&session_token=t&path_style=false&connect_timeout_s=1.5&read_timeout_s=3&namespace=n&verify=false"
    )
    assert (made.bucket, made.prefix, made.namespace) == ("bucket", "a/b", "n")
    given = made.storage_options()
    assert (given["key"], given["secret"], given["token"]) == ("k", "s/1", "t")
    assert given["client_kwargs"] == {"verify": False, "region_name": "eu"}
    config = given["config_kwargs"]
    assert isinstance(config, dict)
    assert config["retries"]["total_max_attempts"] == 1
    assert (config["connect_timeout"], config["read_timeout"]) == (1.5, 3)
    assert config["s3"] == {"addressing_style": "virtual"}
    assert (given["use_listings_cache"], given["skip_instance_cache"]) == (False, True)
    assert "s/1" not in f"{made!r} {made}"


def test_without_credentials_the_usual_ones_are_used() -> None:
    given = options("s3://bucket").storage_options()
    assert not {"key", "secret", "token", "profile", "endpoint_url"} & set(given)


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("s3://", "url"),
        ("s3://a,b", "url"),
        ("s3://bucket:9000", "url"),
        ("s3://key:secret@bucket", "url"),
        ("s3://b%2Fc", "url"),
        ("s3://..", "url"),
        ("s3://bucket?bucket=other", "bucket"),
        ("s3://bucket?prefix=other", "prefix"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/a/../b", "prefix"),
        ("s3://bucket/a%00b", "prefix"),
        ("s3://bucket/" + "x" * 320, "prefix"),
        ("s3://bucket/" + "%C3%A9" * 160, "prefix"),
        ("s3://bucket?access_key_id=k", "secret_access_key"),
        ("s3://bucket?secret_access_key=s", "access_key_id"),
        ("s3://bucket?session_token=t", "session_token"),
        ("s3://bucket?endpoint_url=localhost:9000", "endpoint_url"),
        ("s3://bucket?endpoint_url=ftp://host", "endpoint_url"),
        ("s3://bucket?endpoint_url=http://host:99999", "endpoint_url"),
        ("s3://bucket?endpoint_url=http%3A%2F%2Fme%3Ahidden%40host", "endpoint_url"),
        ("s3://bucket?verify=false&ca_bundle=/ca.pem", "verify"),
        ("s3://bucket?path_style=sometimes", "path_style"),
        ("s3://bucket?read_timeout_s=0", "read_timeout_s"),
        ("s3://bucket?connections_max=0", "connections_max"),
        ("s3://bucket?durability=none", "durability"),
        ("s3://bucket?no_such_option=1", "no_such_option"),
    ],
)
def test_what_is_wrong_names_the_option(url: str, option: str) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        options(url)
    assert raised.value.option == option
    assert "hidden" not in str(raised.value)
    assert "secret@" not in str(raised.value)


def test_the_longest_prefix_leaves_room_for_the_longest_key() -> None:
    longest = max(size for size in range(1, 400) if _fits(size))
    layout = options(f"s3://bucket/{'x' * longest}").layout()
    scope = "/".join(["s" * 127] * 5)
    key = layout.blob(scope, "b" * 64).removeprefix("bucket/")
    assert len(scope) == 639
    assert len(key) <= 1_024


def _fits(size: int) -> bool:
    try:
        options(f"s3://bucket/{'x' * size}")
    except InvalidConfiguration:
        return False
    return True


def test_a_profile_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/does/not/exist")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/does/not/exist")
    with pytest.raises(InvalidConfiguration) as raised:
        statebook.open_atomic("s3://bucket?profile=nobody&endpoint_url=http://127.0.0.1:1")
    assert raised.value.option == "profile"


def test_missing_credentials_are_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/does/not/exist")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/does/not/exist")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(InvalidConfiguration, match="credentials") as raised:
        statebook.open_atomic("s3://bucket?endpoint_url=http://127.0.0.1:1")
    assert raised.value.option == "access_key_id"
