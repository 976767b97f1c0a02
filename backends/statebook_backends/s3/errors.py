"""What each answer of an S3 endpoint, and each error of its drivers, means: lost, not applied, or unknown (ERR-2).

Two drivers speak to the endpoint: the commit path's, whose answers are judged by status and code, and fsspec's S3 file
system, which turns some into `OSError` with the driver's error as the cause.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import ClientError as AiohttpError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    TokenRetrievalError,
)
from fsspec.exceptions import FSTimeoutError

from statebook.errors import BackendUnavailable, InvalidConfiguration, StatebookError
from statebook_backends.s3.http import NotConnected
from statebook_backends.s3.names import BACKEND
from statebook_backends.s3.writers import LOST, Lost, Unsure

UNDECIDED: Final = "the store neither accepted nor refused the write"

_UNSENT: Final = (
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
    NotConnected,
)
"""Errors that come before a request is sent. Closed: every other error of a driver is unknown."""

_THROTTLED: Final = frozenset(
    {"SlowDown", "SlowDownWrite", "SlowDownRead", "Throttling", "ThrottlingException", "TooManyRequests",
     "TooManyRequestsException", "RequestLimitExceeded", "RequestThrottled", "BandwidthLimitExceeded"}
)  # fmt: skip
"""Codes that say that a request was turned away before it was looked at."""

_REFUSED: Final = frozenset({301, 307, 400, 401, 403, 405, 411, 413, 414, 415, 416, 417, 429, 431, 501})
"""Statuses of refusals before execution. Closed: 408, 5xx and all others are unknown."""

_TIMED_OUT: Final = frozenset({"RequestTimeout", "RequestTimeoutException"})
_CREDENTIALS: Final = frozenset(
    {"AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId", "SignatureDoesNotMatch",
     "InvalidToken", "ExpiredToken", "InvalidClientTokenId", "UnrecognizedClientException", "403", "401"}
)  # fmt: skip
_ABSENT: Final = frozenset({"NoSuchKey", "404", ""})


class Refused(Exception):
    """An answer of the endpoint that is no success, without the driver's text, which may be long.

    Attributes:
        status: The HTTP status.
        code: The code of the error document, or empty.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"HTTP {status} {code} {message}".strip())
        self.status = status
        self.code = code


def judge_write(path: str, status: int, code: str, cause: Exception) -> Lost:
    """Say what an answer to a conditional write means that is no success.

    Args:
        path: The object.
        status: The HTTP status.
        code: The code of the error document, or empty.
        cause: The driver's error.

    Returns:
        `LOST`: the condition was not met; If-Match on a missing object is 412 or 404.

    Raises:
        BackendUnavailable: Refused before execution.
        Unsure: Anything else; `again` for 409, which decides nothing.
    """
    if status == 412 or (status == 404 and code in _ABSENT):
        return LOST
    if status == 409:
        raise Unsure(f"{UNDECIDED} (HTTP 409 {code})", again=True) from cause
    if is_refusal(status, code):
        raise unavailable(path, status, code) from cause
    raise Unsure(f"the answer does not say whether the write was applied (HTTP {status} {code})") from cause


def is_refusal(status: int, code: str) -> bool:
    """Tell whether an answer proves that a request was not executed (ERR-2)."""
    if code in _TIMED_OUT:
        return False
    return status in _REFUSED or (status == 503 and code in _THROTTLED) or (status == 404 and code == "NoSuchBucket")


def unavailable(path: str, status: int, code: str) -> BackendUnavailable:
    """The error for a request that was refused, with the remedy."""
    if code == "NoSuchBucket":
        remedy = "the bucket does not exist; make it, or correct the URL"
    elif status in (401, 403):
        remedy = "the endpoint denies access; check the credentials and the bucket's policy"
    elif status in (429, 503):
        remedy = "the endpoint asks to slow down; try again later"
    elif status in (301, 307):
        remedy = "the bucket is in another region or at another endpoint; correct region or endpoint_url"
    else:
        remedy = "the endpoint refused the request"
    answer = f"HTTP {status} {code}".strip()
    return BackendUnavailable(f"{remedy} ({answer}); nothing was applied", key=path, backend=BACKEND)


@contextmanager
def driver_errors(path: str, *, writes: bool) -> Iterator[None]:
    """Classify every error of the drivers in a block that makes one request (ERR-1, ERR-2).

    Args:
        path: What the request is about.
        writes: Whether it changes something, so that it may have been applied.

    Yields:
        Nothing.

    Raises:
        BackendUnavailable: Certainly not applied, or a read without an answer.
        Unsure: Perhaps applied.
    """
    try:
        yield
    except (ClientError, Refused) as error:
        status, code = answer_of(error)
        if not writes or is_refusal(status, code):
            raise unavailable(path, status, code) from error
        raise Unsure(f"the answer does not say whether it was applied (HTTP {status} {code})") from error
    except _UNSENT as error:
        raise BackendUnavailable(
            f"the endpoint cannot be reached, or there are no credentials ({type(error).__name__}); nothing was sent",
            key=path,
            backend=BACKEND,
        ) from error
    except (BotoCoreError, HTTPClientError, AiohttpError, FSTimeoutError, OSError) as error:
        answered = error.__cause__
        if isinstance(answered, ClientError):
            with driver_errors(path, writes=writes):
                raise answered from None
        if writes:
            raise Unsure(f"no answer came ({type(error).__name__})") from error
        raise BackendUnavailable(
            f"no answer came ({type(error).__name__}); try again", key=path, backend=BACKEND
        ) from error


def answer_of(error: ClientError | Refused) -> tuple[int, str]:
    """The status and the code of an answer that is an error."""
    if isinstance(error, Refused):
        return error.status, error.code
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status, code


def is_absent(error: Exception) -> bool:
    """Tell whether an error of either driver says that there is no such object, the bucket being there."""
    found = error if isinstance(error, ClientError | Refused) else error.__cause__
    if not isinstance(found, ClientError | Refused):
        return isinstance(error, FileNotFoundError)
    status, code = answer_of(found)
    return status == 404 and code in _ABSENT


@contextmanager
def opening(place: str) -> Iterator[None]:
    """Turn what goes wrong while a store is opened into what an operator can act on (ERR-6).

    Args:
        place: The bucket and endpoint, for the message.

    Yields:
        Nothing.

    Raises:
        InvalidConfiguration: It cannot be opened as asked; names the option and the remedy.
        BackendUnavailable: The endpoint does not answer now.
    """
    try:
        yield
    except BackendUnavailable as error:
        raise _opened(error, error.__cause__, place) from error.__cause__
    except Unsure as error:
        raise BackendUnavailable(f"{place} did not answer a write ({error}); try again", backend=BACKEND) from error
    except (BotoCoreError, ValueError) as error:
        if isinstance(error, StatebookError):
            raise
        raise InvalidConfiguration(
            f"no client can be made for {place} ({type(error).__name__}): check profile, region, endpoint_url and "
            "ca_bundle",
            option="profile" if "Profile" in type(error).__name__ else "endpoint_url",
            backend=BACKEND,
        ) from error


def _opened(error: BackendUnavailable, cause: BaseException | None, place: str) -> StatebookError:
    if isinstance(cause, NoCredentialsError | PartialCredentialsError):
        return InvalidConfiguration(
            "there are no credentials: give access_key_id and secret_access_key, or a profile, or set the environment "
            "variables of AWS",
            option="access_key_id",
            backend=BACKEND,
        )
    if isinstance(cause, SSLError) or (cause is not None and isinstance(cause.__cause__, ssl.SSLError)):
        return InvalidConfiguration(
            f"the certificate of {place} is not trusted: give the file with its authority as ca_bundle",
            option="ca_bundle",
            backend=BACKEND,
        )
    status, code = answer_of(cause) if isinstance(cause, ClientError | Refused) else (0, "")
    if code == "NoSuchBucket":
        return InvalidConfiguration(
            f"{place} does not exist; make it first, or correct the URL", option="url", backend=BACKEND
        )
    if status in (401, 403) or code in _CREDENTIALS:
        return InvalidConfiguration(
            f"{place} denies access ({code or status}): check keys and the bucket's policy; "
            "a store gets, puts, lists and deletes objects",
            option="access_key_id",
            backend=BACKEND,
        )
    if status in (301, 307, 400):
        return InvalidConfiguration(
            f"{place} refuses requests as they are made ({code or status}): check region, path_style and endpoint_url",
            option="region",
            backend=BACKEND,
        )
    if status in (405, 501):
        return InvalidConfiguration(
            f"{place} does not take conditional writes ({code or status}); use a store that honours If-Match and "
            "If-None-Match on PUT",
            option="endpoint_url",
            backend=BACKEND,
        )
    return BackendUnavailable(f"{place} cannot be used now: {error.message}", backend=BACKEND)
