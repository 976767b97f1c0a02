"""ModelRequestObserver: every transport attempt of a model call, recorded inside the retry (J23).

A framework's retry loop sits around `ModelCall.attempt`, so that each attempt has its own identity, usage and outcome
in the journal. When recording fails, the provider is not asked again: the failure is an error of its own, and every
further attempt of the call raises it before its transport is touched, whatever a retry loop catches and wraps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from statebook.codec import Json
from statebook.errors import InvalidInput, Overloaded, StatebookError
from statebook.ids import new_id as fresh_id
from statebook.model import RecordedEvent
from statebook.threads.events import (
    ModelEnd,
    ModelRequestEnded,
    ModelRequestStarted,
    ModelRequestUsage,
    TokenUsage,
)
from statebook.threads.payload import EventPayload, Message, RequestOutcome

T = TypeVar("T")


class RequestRecorder(Protocol):
    """What an observer needs of an `InvocationRecorder`."""

    def append(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Json,
        *,
        flush: bool = False,
        required: bool = False,
    ) -> None:
        """As `InvocationRecorder.append`."""
        ...

    async def record(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Json,
        *,
        required: bool = False,
    ) -> RecordedEvent:
        """As `InvocationRecorder.record`."""
        ...


class ModelRecordingFailed(StatebookError):
    """An attempt could not be recorded. The provider must not be asked again because of it.

    Never retry it: its `retry` is `NEVER`, and further attempts raise it before they begin. The recorder's own error is
    the cause.
    """


class ModelAttempt:
    """One transport attempt in flight.

    Attributes:
        request_id: The attempt's own id.
        attempt: Which attempt of its call, from 1.
    """

    def __init__(self, call: ModelCall, request_id: str, attempt: int) -> None:
        """Begin an attempt."""
        self.request_id = request_id
        self.attempt = attempt
        self.usage: TokenUsage | None = None
        self.provider_request_id: str | None = None
        self.status: int | None = None
        self._call = call

    def used(self, usage: TokenUsage) -> None:
        """Record what the attempt has used so far; its commit starts at once and may land before the attempt ends.

        Args:
            usage: All of it up to now. What is not known stays None, and is never taken for zero.

        Raises:
            ModelRecordingFailed: It could not be recorded.
        """
        self.usage = usage
        self._call.note(ModelRequestUsage(request_id=self.request_id, usage=usage))

    def answered(self, *, provider_request_id: str | None = None, status: int | None = None) -> None:
        """Keep what the provider says about the request, for the attempt's end.

        Args:
            provider_request_id: The provider's name for it, or None.
            status: The provider's status code, or None.
        """
        self.provider_request_id = provider_request_id
        self.status = status


class ModelCall:
    """One model call: its attempts are counted here."""

    def __init__(
        self,
        observer: ModelRequestObserver,
        call_id: str,
        *,
        provider: str | None,
        model: str | None,
        step: int | None,
        provenance: Message | None,
    ) -> None:
        """Begin a call without attempts."""
        self.call_id = call_id
        self._observer = observer
        self._provider = provider
        self._model = model
        self._step = step
        self._provenance = provenance
        self._attempts = 0
        self._failed: BaseException | None = None

    @property
    def attempts(self) -> int:
        """How many attempts were begun."""
        return self._attempts

    async def attempt(self, send: Callable[[ModelAttempt], Awaitable[T]]) -> T:
        """Make one transport attempt, recorded. Call it inside the retry loop, once an attempt.

        Guarantees J23: the start is durable before the provider is asked. However the attempt ends, its end is
        recorded, with the usage as far as it is known.

        Args:
            send: Asks the provider once, and reports usage to the attempt as it becomes known.

        Returns:
            What `send` gave.

        Raises:
            ModelRecordingFailed: It could not be recorded; the provider was not asked, or its answer is dropped.
            BaseException: What `send` raised, after the end was recorded.
        """
        if self._failed is not None:
            raise _failure(self._failed)
        self._observer.check()
        self._attempts += 1
        attempt = ModelAttempt(self, self._observer.new_request_id(), self._attempts)
        await self._record(
            ModelRequestStarted(
                request_id=attempt.request_id,
                call_id=self.call_id,
                attempt=attempt.attempt,
                provider=self._provider,
                model=self._model,
                step=self._step,
                provenance=self._provenance,
            )
        )
        try:
            result = await send(attempt)
        except ModelRecordingFailed as failed:
            self._stop(failed)
            raise
        except asyncio.CancelledError as error:
            self._note_end(attempt, "cancelled", error)
            raise
        except BaseException as error:
            self._note_end(attempt, "failed", error)
            raise
        await self._record(_end(attempt, "completed", None))
        return result

    def note(self, payload: EventPayload) -> None:
        """Hand an event of an attempt over, without waiting.

        Args:
            payload: The event's payload.

        Raises:
            ModelRecordingFailed: It was not taken; no attempt of this call follows.
        """
        try:
            self._observer.note(payload)
        except ModelRecordingFailed as failed:
            self._stop(failed)
            raise

    def _stop(self, failed: ModelRecordingFailed) -> None:
        """Let no attempt follow; the first reason stays."""
        if self._failed is None:
            self._failed = failed.__cause__ or failed

    async def _record(self, payload: EventPayload) -> None:
        try:
            await self._observer.record(payload)
        except ModelRecordingFailed as failed:
            self._stop(failed)
            raise

    def _note_end(self, attempt: ModelAttempt, outcome: RequestOutcome, error: BaseException) -> None:
        """Hand the end over without waiting: the transport's error goes on; a failed recording stops what follows."""
        try:
            self.note(_end(attempt, outcome, type(error).__name__))
        except ModelRecordingFailed as failed:
            if isinstance(error, Exception):
                failed.add_note(f"the attempt itself had failed: {type(error).__name__}")
                raise
            error.add_note(f"the end of the attempt could not be recorded: {failed}")


def _end(attempt: ModelAttempt, outcome: RequestOutcome, error: str | None) -> ModelRequestEnded:
    return ModelRequestEnded(
        request_id=attempt.request_id,
        outcome=outcome,
        usage=attempt.usage,
        provider_request_id=attempt.provider_request_id,
        status=attempt.status,
        error=error,
    )


class ModelRequestObserver:
    """Records the model requests of one invocation. Used from one event loop."""

    def __init__(self, recorder: RequestRecorder, *, new_id: Callable[[], str] = fresh_id) -> None:
        """Make an observer. No I/O.

        Args:
            recorder: The invocation's recorder.
            new_id: Makes request ids.
        """
        self._recorder = recorder
        self._new_id = new_id
        self._failed: StatebookError | None = None

    def call(
        self,
        call_id: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        step: int | None = None,
        provenance: Message | None = None,
    ) -> ModelCall:
        """Begin to observe a model call. No I/O.

        Args:
            call_id: The model call, as in its `model/dispatch`.
            provider: Who is asked, or None.
            model: The model's name, or None.
            step: The step of the run, or None.
            provenance: Where the request comes from, as the framework says.

        Returns:
            The call, without attempts.
        """
        return ModelCall(self, call_id, provider=provider, model=model, step=step, provenance=provenance)

    async def result(
        self,
        call: ModelCall,
        committed: ModelEnd | None,
        make: Callable[[ModelCall], Awaitable[ModelEnd]],
    ) -> ModelEnd:
        """Give a call's result: the committed one where there is one, else make it.

        Guarantees J23: replaying a committed result asks nobody and records no request.

        Args:
            call: The call.
            committed: Its result as it stands in the journal, or None.
            make: Makes the call, with the framework's retries around `ModelCall.attempt`.

        Returns:
            The result.

        Raises:
            ValueError: The committed result is another call's.
            BaseException: What `make` raised.
        """
        if committed is None:
            return await make(call)
        if committed.call_id != call.call_id:
            raise ValueError(f"the committed result is of call {committed.call_id!r}, not of {call.call_id!r}")
        return committed

    # ----------------------------------------------------------------------------------------- for calls and attempts

    def new_request_id(self) -> str:
        """A fresh request id."""
        return self._new_id()

    def check(self) -> None:
        """Raise where an earlier recording failed.

        Raises:
            ModelRecordingFailed: It did; nobody is to be asked.
        """
        if self._failed is not None:
            raise _failure(self._failed)

    def note(self, payload: EventPayload) -> None:
        """Hand an event over; its commit starts at once and is not awaited.

        Args:
            payload: The event's payload.

        Raises:
            ModelRecordingFailed: It was not taken.
        """
        self.check()
        try:
            self._recorder.append(payload.event_type, payload.to_json(), flush=True, required=payload.event_required)
        except StatebookError as error:
            raise self._fail(error) from error

    async def record(self, payload: EventPayload) -> None:
        """Record an event and wait for its commit.

        Args:
            payload: The event's payload.

        Raises:
            ModelRecordingFailed: It was not committed, or nobody can tell.
        """
        self.check()
        try:
            await self._recorder.record(payload.event_type, payload.to_json(), required=payload.event_required)
        except StatebookError as error:
            raise self._fail(error) from error

    def _fail(self, error: StatebookError) -> ModelRecordingFailed:
        if not isinstance(error, (InvalidInput, Overloaded)):  # those leave the recorder as it was
            self._failed = error
        return _failure(error)


def _failure(error: BaseException | None) -> ModelRecordingFailed:
    message, key = (error.message, error.key) if isinstance(error, StatebookError) else (str(error), None)
    failed = ModelRecordingFailed(
        f"a model request could not be recorded: {type(error).__name__}: {message} Do not ask the provider again",
        key=key,
    )
    failed.__cause__ = error
    return failed


class UsageTotal(msgspec.Struct, frozen=True):
    """What several requests used together, as far as it is known.

    Attributes:
        known: The sums of what is known; None where nothing is.
        requests: How many requests there were.
        unknown: How many of them said nothing about their usage.
    """

    known: TokenUsage
    requests: int
    unknown: int


def total_usage(usages: Iterable[TokenUsage | None]) -> UsageTotal:
    """Add up usages. What is missing stays missing: it is counted as unknown and never as zero (J23).

    Args:
        usages: One a request, None where it is unknown.

    Returns:
        The total.
    """
    sums: dict[str, int] = {}
    requests = unknown = 0
    for usage in usages:
        requests += 1
        amounts = {} if usage is None else usage.model_dump(exclude_none=True)
        unknown += not amounts
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
    return UsageTotal(TokenUsage.model_validate(sums), requests, unknown)
