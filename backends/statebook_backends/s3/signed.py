"""The commit path without boto3's layers: each request is one signature, one send and one answer, sent once.

boto3 builds, signs, sends and parses a request through dozens of hooks. Used where an endpoint is given. On AWS itself
boto3 stays: it knows redirects between regions, access points and buckets with sessions, and the way there costs more
than it does.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from botocore.client import BaseClient
from botocore.exceptions import NoCredentialsError
from botocore.httpsession import get_cert_path

from statebook_backends.s3.http import Address, Connections
from statebook_backends.s3.sigv4 import Keys, signed_headers
from statebook_backends.s3.wire import Reply, content_md5

_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,128})</Code>")
_PROBE_KEY: Final = "k"
_BASES_MAX: Final = 64
_PORTS: Final = {"http": 80, "https": 443}


class Frozen(Protocol):
    """Credentials of one moment."""

    @property
    def access_key(self) -> str:
        """The public part."""
        ...

    @property
    def secret_key(self) -> str:
        """The secret."""
        ...

    @property
    def token(self) -> str | None:
        """The token of a session, or None."""
        ...


class Credentials(Protocol):
    """Credentials of botocore, which renew themselves."""

    def get_frozen_credentials(self) -> Frozen:
        """Those of this moment."""
        ...


class _Base(msgspec.Struct, frozen=True):
    """Where the objects of a bucket are.

    Attributes:
        address: The endpoint.
        host: What goes as `Host`.
        path: What their paths begin with, quoted.
    """

    address: Address
    host: str
    path: str


class SignedWire:
    """Signed requests over kept connections."""

    def __init__(
        self,
        client: BaseClient,
        credentials: Credentials | None,
        *,
        verify: bool | str,
        connect_timeout_s: float,
        read_timeout_s: float,
        connections_max: int,
    ) -> None:
        """Send to the endpoint of a client of boto3; sends nothing yet.

        Args:
            client: The client, which knows endpoint, region and style of addresses; it sends nothing.
            credentials: The credentials, or None where there are none.
            verify: Whether the endpoint's certificate is checked, or the file with the authorities.
            connect_timeout_s: How long to wait for a connection, in seconds.
            read_timeout_s: How long to wait for an answer, in seconds.
            connections_max: How many connections are kept.

        Raises:
            OSError: The file with the authorities cannot be read.
        """
        self._client: Any = client
        self._credentials = credentials
        self._region: str = self._client.meta.region_name
        self._connections = Connections(
            trust=_trust(verify=verify) if self._client.meta.endpoint_url.startswith("https:") else None,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
            kept_max=connections_max,
        )
        self._base = lru_cache(maxsize=_BASES_MAX)(self._find_base)

    def get(self, bucket: str, key: str, if_none_match: str | None) -> Reply:
        return self._send("GET", bucket, key, {} if if_none_match is None else {"if-none-match": if_none_match})

    def put(self, bucket: str, key: str, body: bytes, if_match: str | None) -> Reply:
        condition = {"if-none-match": "*"} if if_match is None else {"if-match": if_match}
        return self._send("PUT", bucket, key, {**condition, "content-md5": content_md5(body)}, body)

    def delete(self, bucket: str, key: str, if_match: str) -> Reply:
        return self._send("DELETE", bucket, key, {"if-match": if_match})

    def close(self) -> None:
        self._connections.close()
        self._client.close()

    def _send(self, method: str, bucket: str, key: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        if self._credentials is None:
            raise NoCredentialsError
        base = self._base(bucket)
        path = f"{base.path}/{quote(key, safe='/~')}"
        frozen = self._credentials.get_frozen_credentials()
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        every = signed_headers(keys, self._region, method, base.host, path, headers, body, now)
        lines = "".join([f"{name}: {value}\r\n" for name, value in every.items()])
        head = f"{method} {path} HTTP/1.1\r\n{lines}content-length: {len(body)}\r\naccept-encoding: identity\r\n\r\n"
        answer = self._connections.exchange(base.address, method, head.encode("latin-1"), body)
        failed = answer.status >= 300 and answer.status != 304
        code = _CODE.search(answer.body) if failed else None
        return Reply(
            answer.status,
            code[1].decode() if code else "",
            answer.headers.get("etag", ""),
            answer.headers.get("server", ""),
            b"" if failed else answer.body,
        )

    def _find_base(self, bucket: str) -> _Base:
        """Ask the client for the address of an object, which takes no request."""
        url = self._client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": _PROBE_KEY})
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        named = f"[{host}]" if ":" in host else host
        return _Base(
            Address(host, port, parts.scheme == "https"),
            named if port == _PORTS[parts.scheme] else f"{named}:{port}",
            parts.path.removesuffix("/" + _PROBE_KEY),
        )


def _trust(*, verify: bool | str) -> ssl.SSLContext:
    if not verify:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        return trust
    return ssl.create_default_context(cafile=get_cert_path(verify))
