"""The options of `s3://bucket/prefix?endpoint_url=…`."""

from __future__ import annotations

import re
from typing import ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from statebook.errors import InvalidConfiguration
from statebook.options import BackendOptions, StoreUrl
from statebook_backends.s3.names import Layout

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z", re.ASCII)
_ENDPOINT_SCHEMES = ("http", "https")


class S3Options(BackendOptions):
    """What an S3 store is opened with.

    Credentials that are not given come from where AWS's own tools look for them: environment, profile, instance role.

    Attributes:
        bucket: The bucket. It must exist.
        prefix: Everything is stored below this key prefix; empty: below the bucket's root.
        namespace: As for every backend.
        endpoint_url: The endpoint, such as `https://minio.example:9000`; None for AWS.
        region: The region; None: as AWS's own tools choose, or `us-east-1` where an endpoint is given.
        access_key_id: The access key, with `secret_access_key`.
        secret_access_key: Its secret.
        session_token: The token of temporary credentials.
        profile: A profile of AWS's configuration files.
        path_style: Whether the bucket stands in the path (`true`) or in the host name (`false`); `auto`: in the path
            where an endpoint is given.
        connect_timeout_s: How long to wait for a connection.
        read_timeout_s: How long to wait for an answer. A write without one is then read back, which may take as long.
        connections_max: How many connections are kept for use again.
        verify: Whether the certificate of the endpoint is checked.
        ca_bundle: A file with the authorities to check it against.
        durability: What the operator knows of the store, since it cannot be probed: `host`, or `replicated` where an
            acknowledged object survives the loss of a machine.
        linger_ms: A fact for commit lanes, shown among the server's: how long to gather batches where each request is
            priced or rate-limited. The store itself never waits.
    """

    scheme: ClassVar[str] = "s3"

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = Field(default=None, min_length=1, max_length=64)
    access_key_id: str | None = Field(default=None, min_length=1)
    secret_access_key: SecretStr | None = Field(default=None, min_length=1)
    session_token: SecretStr | None = Field(default=None, min_length=1)
    profile: str | None = Field(default=None, min_length=1)
    path_style: Literal["auto", "true", "false"] = "auto"
    connect_timeout_s: float = Field(default=5.0, gt=0, le=600)
    read_timeout_s: float = Field(default=10.0, gt=0, le=600)
    connections_max: int = Field(default=32, ge=1, le=1_024)
    verify: bool = True
    ca_bundle: str | None = Field(default=None, min_length=1)
    durability: Literal["host", "replicated"] = "host"
    linger_ms: int = Field(default=0, ge=0, le=60_000)

    @classmethod
    def from_url(cls, url: StoreUrl) -> Self:
        """Turn a URL into options. No I/O.

        Args:
            url: `s3://bucket/prefix`, and options.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: The URL names no bucket, or an option is unknown or wrong (ERR-6).
        """
        if url.username is not None or url.password is not None:
            raise refused(
                "credentials do not stand before the bucket; give access_key_id and secret_access_key, a profile, or "
                "none to use the environment's",
                "url",
            )
        if len(url.hosts) != 1 or url.hosts[0].port is not None:
            raise refused("an S3 store is opened as s3://bucket/prefix; an endpoint is given as endpoint_url=…", "url")
        values: dict[str, object] = dict(url.query)
        for name in ("bucket", "prefix"):
            if name in values:
                raise refused(f"the {name} stands in the URL itself: s3://bucket/prefix", name)
        values |= {"bucket": url.hosts[0].name, "prefix": url.path.strip("/")}
        allowed = tuple(name for name in cls.model_fields if name not in ("bucket", "prefix"))
        return cls.checked(values, allowed=allowed).settled()

    def settled(self) -> Self:
        """Return the options after the checks that concern several of them, or what no field can say.

        Returns:
            The same options.

        Raises:
            InvalidConfiguration: Names the option and the remedy (ERR-6).
        """
        if not _BUCKET.match(self.bucket):
            raise refused("the bucket's name is 2 to 255 letters, digits, '.', '-' and '_': s3://bucket/prefix", "url")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            missing = "secret_access_key" if self.secret_access_key is None else "access_key_id"
            raise refused("access_key_id and secret_access_key are given together, or neither", missing)
        if self.session_token is not None and self.access_key_id is None:
            raise refused("session_token goes with access_key_id and secret_access_key", "session_token")
        if self.ca_bundle is not None and not self.verify:
            raise refused("ca_bundle says whom to trust, verify=false says not to check; give one of them", "verify")
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)
        self.layout()
        return self

    def layout(self) -> Layout:
        """Where what stands.

        Raises:
            InvalidConfiguration: The prefix cannot be part of a key, or leaves no room for the longest one.
        """
        return Layout.below(f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket, self.namespace)

    @property
    def place(self) -> str:
        """The bucket and its endpoint, for messages."""
        return f"bucket {self.bucket!r} at {self.endpoint_url or 'AWS'}"

    def storage_options(self) -> dict[str, object]:
        """These options as fsspec's S3 file system takes them: caches off, one attempt, explicit time-outs (ERR-3)."""
        style = {"auto": "path" if self.endpoint_url else "auto", "true": "path", "false": "virtual"}[self.path_style]
        client: dict[str, object] = {"verify": self.ca_bundle or self.verify}
        region = self.region or ("us-east-1" if self.endpoint_url and self.profile is None else None)
        if region is not None:
            client["region_name"] = region
        given: dict[str, object] = {
            "endpoint_url": self.endpoint_url,
            "key": self.access_key_id,
            "secret": _revealed(self.secret_access_key),
            "token": _revealed(self.session_token),
            "profile": self.profile,
        }
        return {name: value for name, value in given.items() if value is not None} | {
            "client_kwargs": client,
            "config_kwargs": {
                "connect_timeout": self.connect_timeout_s,
                "read_timeout": self.read_timeout_s,
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                "max_pool_connections": self.connections_max,
                "s3": {"addressing_style": style},
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
            "use_listings_cache": False,
            "skip_instance_cache": True,
            "cache_regions": False,
            "default_block_size": 64 * 1024 * 1024,
            "default_cache_type": "none",
            "default_fill_cache": False,
            "max_concurrency": 1,
        }


def refused(message: str, option: str) -> InvalidConfiguration:
    """The error for a wrong option."""
    return InvalidConfiguration(message, option=option, backend=S3Options.scheme)


def _check_endpoint(text: str) -> None:
    """Refuse what is no endpoint; the text is not shown, since it may hold a password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise refused("endpoint_url is no URL; give http://host:port or https://host:port", "endpoint_url") from None
    if parts.username is not None or parts.password is not None:
        raise refused("endpoint_url holds no user; give access_key_id and secret_access_key", "endpoint_url")
    if parts.scheme not in _ENDPOINT_SCHEMES or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise refused("endpoint_url must be http://host:port or https://host:port", "endpoint_url")


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
