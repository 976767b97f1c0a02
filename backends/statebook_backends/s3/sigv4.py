"""Signature Version 4 for requests on objects, whose bodies are signed too. Pure but for the time, which is given."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "s3"


class Keys(msgspec.Struct, frozen=True):
    """Credentials of one moment.

    Attributes:
        access_key: The public part.
        secret_key: The secret.
        token: The token of a session, or None.
    """

    access_key: str
    secret_key: str
    token: str | None

    def __repr__(self) -> str:
        """Without the secrets (ERR-6)."""
        return "Keys(...)"


def signed_headers(
    keys: Keys, region: str, method: str, host: str, path: str, headers: Mapping[str, str], body: bytes, now: str
) -> dict[str, str]:
    """Sign a request without a query.

    Args:
        keys: The credentials.
        region: The region.
        method: The method.
        host: What goes as `Host`.
        path: The path, quoted as it is sent.
        headers: Further headers, which are all signed; names in lower case.
        body: The body.
        now: The time as `20261130T180000Z`.

    Returns:
        All headers to send, names in lower case, but for `content-length`.
    """
    payload = hashlib.sha256(body).hexdigest()
    every = {**headers, "host": host, "x-amz-content-sha256": payload, "x-amz-date": now}
    if keys.token is not None:
        every["x-amz-security-token"] = keys.token
    names = sorted(every)
    listed = ";".join(names)
    lines = "".join([f"{name}:{every[name]}\n" for name in names])
    request = f"{method}\n{path}\n\n{lines}\n{listed}\n{payload}"
    day = now[:8]
    scope = f"{day}/{region}/{_SERVICE}/aws4_request"
    text = f"{_ALGORITHM}\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = _hmac(_signing_key(keys.secret_key, day, region), text).hex()
    every["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={listed}, Signature={signature}"
    )
    return every


@lru_cache(maxsize=16)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, _SERVICE, "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
