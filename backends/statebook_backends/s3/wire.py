"""What the commit path says to an endpoint, whoever carries it: three requests, each sent once, and their answer."""

from __future__ import annotations

import base64
import hashlib
from abc import abstractmethod
from typing import Protocol

import msgspec


def content_md5(body: bytes) -> str:
    """The `Content-MD5` that goes with every PUT, so that a store does not keep what a dying client began to send.

    SeaweedFS keeps an empty object where a connection ends between the headers and the body, though the length and the
    signature say otherwise; with this header it refuses.

    Args:
        body: The body.

    Returns:
        The header's value.
    """
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")


class Reply(msgspec.Struct, frozen=True):
    """An answer.

    Attributes:
        status: The HTTP status.
        code: The code of the error document, or empty.
        etag: The ETag as it came, quotes included, or empty.
        server: What the endpoint calls itself, or empty.
        body: The object, where it was asked for.
    """

    status: int
    code: str = ""
    etag: str = ""
    server: str = ""
    body: bytes = b""


class Wire(Protocol):
    """Carries requests to an endpoint. Safe from many threads; raises the driver's own errors where no answer comes."""

    @abstractmethod
    def get(self, bucket: str, key: str, if_none_match: str | None) -> Reply:
        """GET an object; 304 where it still has the ETag that is given."""

    @abstractmethod
    def put(self, bucket: str, key: str, body: bytes, if_match: str | None) -> Reply:
        """PUT an object with its Content-MD5, and If-Match, or `If-None-Match: *` where no ETag is given."""

    @abstractmethod
    def delete(self, bucket: str, key: str, if_match: str) -> Reply:
        """DELETE an object with If-Match."""

    @abstractmethod
    def close(self) -> None:
        """Close its connections."""
