"""The commit path without boto3's layers: signed with botocore, sent by urllib3, once each.

boto3 builds, signs, sends and parses a request through dozens of hooks; here a request is one signature and one write.
Used where an endpoint is given. On AWS itself boto3 stays: it knows redirects between regions, access points and
buckets with sessions, and the way there costs more than it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import BaseClient
from botocore.exceptions import NoCredentialsError
from botocore.httpsession import get_cert_path

from statebook_backends.s3.wire import Reply, content_md5

_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9.]{1,128})</Code>")
_PROBE_KEY: Final = "k"
_BASES_MAX: Final = 64


class Credentials(Protocol):
    """Credentials of botocore, which renew themselves."""

    def get_frozen_credentials(self) -> object:
        """Those of this moment."""


class SignedWire:
    """Signed requests over a pool of connections."""

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
            connect_timeout_s: How long to wait for a connection.
            read_timeout_s: How long to wait for an answer.
            connections_max: How many connections are kept.
        """
        self._client: Any = client
        self._credentials = credentials
        self._region: str = self._client.meta.region_name
        self._pools = urllib3.PoolManager(
            maxsize=connections_max,
            timeout=urllib3.Timeout(connect=connect_timeout_s, read=read_timeout_s),
            retries=False,
            cert_reqs="CERT_REQUIRED" if verify else "CERT_NONE",
            ca_certs=get_cert_path(verify) if verify else None,
        )
        self._base = lru_cache(maxsize=_BASES_MAX)(self._find_base)

    def get(self, bucket: str, key: str, if_none_match: str | None) -> Reply:
        return self._send("GET", bucket, key, {} if if_none_match is None else {"If-None-Match": if_none_match})

    def put(self, bucket: str, key: str, body: bytes, if_match: str | None) -> Reply:
        condition = {"If-None-Match": "*"} if if_match is None else {"If-Match": if_match}
        return self._send("PUT", bucket, key, {**condition, "Content-MD5": content_md5(body)}, body)

    def delete(self, bucket: str, key: str, if_match: str) -> Reply:
        return self._send("DELETE", bucket, key, {"If-Match": if_match})

    def close(self) -> None:
        self._pools.clear()
        self._client.close()

    def _send(self, method: str, bucket: str, key: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        if self._credentials is None:
            raise NoCredentialsError
        url = f"{self._base(bucket)}/{quote(key, safe='/~')}"
        request = AWSRequest(method=method, url=url, headers=headers, data=body)
        S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        answer = self._pools.request(
            method, url, body=body, headers=dict(request.headers.items()), redirect=False, decode_content=False
        )
        failed = answer.status >= 300 and answer.status != 304
        code = _CODE.search(answer.data) if failed else None
        return Reply(
            answer.status,
            code[1].decode() if code else "",
            answer.headers.get("etag", ""),
            answer.headers.get("server", ""),
            b"" if failed else answer.data,
        )

    def _find_base(self, bucket: str) -> str:
        """Ask the client for the address of an object, which takes no request."""
        url = self._client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": _PROBE_KEY})
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix('/' + _PROBE_KEY)}"
