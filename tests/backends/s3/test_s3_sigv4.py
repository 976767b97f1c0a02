"""Requests are signed as the endpoint's own library signs them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from statebook_backends.s3.sigv4 import Keys, signed_headers

NOW = "20261130T180001Z"


class _Signer(S3SigV4Auth):
    """Botocore's signer at one moment."""

    def add_auth(self, request: Any) -> None:
        request.context["timestamp"] = NOW
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


@pytest.mark.parametrize("token", [None, "session/token=="])
@pytest.mark.parametrize(
    ("method", "host", "key", "headers", "body"),
    [
        ("GET", "127.0.0.1:9000", "a/b/c!head", {}, b""),
        ("GET", "bucket.s3.example.org", "ä b+c/%d~e'(f)", {"if-none-match": '"abc"'}, b""),
        ("PUT", "127.0.0.1:9000", "p/n/h/t/u!head", {"if-match": '"abc-1"', "content-md5": "e9+/=="}, b"body" * 999),
        ("PUT", "[::1]:9000", "k", {"if-none-match": "*"}, b""),
        ("DELETE", "example.org", "k", {"if-match": '"abc"'}, b""),
    ],
)
def test_signatures_are_those_of_botocore(
    method: str, host: str, key: str, headers: dict[str, str], body: bytes, token: str | None
) -> None:
    path = f"/bucket/{quote(key, safe='/~')}"
    request = AWSRequest(method=method, url=f"http://{host}{path}", headers=dict(headers), data=body)
    _Signer(ReadOnlyCredentials("AKIA", "secret/key", token), "s3", "eu-central-1").add_auth(request)
    ours = signed_headers(Keys("AKIA", "secret/key", token), "eu-central-1", method, host, path, headers, body, NOW)
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert ours["authorization"] == theirs["authorization"]
    assert {**theirs, "host": host} == ours


def test_a_day_and_its_region_have_a_key_of_their_own() -> None:
    keys = Keys("AKIA", "secret", None)
    made = {
        signed_headers(keys, region, "GET", "h", "/k", {}, b"", now)["authorization"]
        for region in ("a", "b")
        for now in (NOW, "20261201T180001Z")
    }
    assert len(made) == 4


def test_keys_do_not_show_themselves() -> None:
    assert "secret" not in repr(Keys("AKIA", "secret", "token"))
