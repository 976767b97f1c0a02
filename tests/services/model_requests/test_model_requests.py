"""Model requests, recorded inside the retry: J23."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from statebook import OutcomeUnknown, Overloaded, Patience, Retry, StatebookError, WriterFenced, decode_value
from statebook.lanes import CommitLanes
from statebook.threads import events as models
from statebook.threads.events import TokenUsage
from statebook.threads.model_requests import ModelAttempt, ModelRecordingFailed, ModelRequestObserver, total_usage
from statebook.threads.recorder import InvocationRecorder

QUICK = Patience(resends_max=1, pause_s=0.0)


class ProviderDown(Exception):
    pass


def run(store: Any, key: Any, body: Callable[[Any, InvocationRecorder], Awaitable[None]]) -> list[tuple[str, Any]]:
    """Run a body with a recorder on a lane; give the model events of the journal."""

    async def main() -> None:
        with CommitLanes(store, patience=QUICK) as lanes:
            recorder = InvocationRecorder(lanes.open(store.claim(key, "w")), run_id="r1")
            await body(recorder, recorder)

    asyncio.run(main())
    return [(event.type, decode_value(event.payload)) for event in store.inner.read_after(key, 0, 10_000).events]


async def naive_retry(action: Callable[[], Awaitable[Any]], tries: int = 3) -> Any:
    """A retry loop as frameworks have it: it catches everything and tries again."""
    last: Exception | None = None
    for _ in range(tries):
        try:
            return await action()
        except Exception as error:  # noqa: BLE001 - the very loop that must do no harm
            last = error
    raise last or AssertionError


def test_each_attempt_is_recorded_inside_the_retry_with_its_identity_usage_and_outcome(
    faulty_real: Any, key: Any
) -> None:
    asked: list[str] = []

    async def send(attempt: ModelAttempt) -> str:
        asked.append(attempt.request_id)
        attempt.used(TokenUsage(input_tokens=7))
        if attempt.attempt == 1:
            attempt.answered(status=503)
            raise ProviderDown("secret prompt")
        attempt.used(TokenUsage(input_tokens=7, output_tokens=0))
        attempt.answered(provider_request_id="p-2", status=200)
        return "answer"

    async def body(recorder: Any, _: Any) -> None:
        ids = iter(("q1", "q2"))
        call = ModelRequestObserver(recorder, new_id=lambda: next(ids)).call(
            "m1", provider="p", model="x", step=2, provenance={"agent": "a"}
        )
        assert await naive_retry(lambda: call.attempt(send)) == "answer"
        assert call.attempts == 2
        await recorder.flush()

    events = run(faulty_real, key, body)
    assert asked == ["q1", "q2"]
    started = {"call_id": "m1", "provider": "p", "model": "x", "step": 2, "provenance": {"agent": "a"}}
    assert events == [
        ("model/request_started", {"request_id": "q1", "attempt": 1, **started}),
        ("model/request_usage", {"request_id": "q1", "usage": {"input_tokens": 7}}),
        (
            "model/request_ended",
            {
                "request_id": "q1",
                "outcome": "failed",
                "usage": {"input_tokens": 7},
                "status": 503,
                "error": "ProviderDown",
            },
        ),
        ("model/request_started", {"request_id": "q2", "attempt": 2, **started}),
        ("model/request_usage", {"request_id": "q2", "usage": {"input_tokens": 7}}),
        ("model/request_usage", {"request_id": "q2", "usage": {"input_tokens": 7, "output_tokens": 0}}),
        (
            "model/request_ended",
            {
                "request_id": "q2",
                "outcome": "completed",
                "usage": {"input_tokens": 7, "output_tokens": 0},
                "provider_request_id": "p-2",
                "status": 200,
            },
        ),
    ]


def test_the_start_is_durable_before_the_provider_is_asked_and_usage_before_the_end(faulty: Any, key: Any) -> None:
    async def body(recorder: InvocationRecorder, _: Any) -> None:
        async def send(attempt: ModelAttempt) -> None:
            assert [event.type for event in faulty.inner.read_after(key, 0).events] == ["model/request_started"]
            attempt.used(TokenUsage(output_tokens=1))
            await recorder.flush()
            assert faulty.inner.head(key).last_seq == 2  # the attempt goes on, its usage is there already

        await ModelRequestObserver(recorder).call("m").attempt(send)

    assert [kind for kind, _ in run(faulty, key, body)][-1] == "model/request_ended"


def test_missing_usage_is_absent_and_never_zero(faulty: Any, key: Any) -> None:
    async def body(recorder: Any, _: Any) -> None:
        async def send(attempt: ModelAttempt) -> None:
            return None

        await ModelRequestObserver(recorder).call("m").attempt(send)

    ended = run(faulty, key, body)[-1][1]
    assert "usage" not in ended
    assert models.ModelRequestEnded.from_json(ended).usage is None


def test_a_cancelled_attempt_has_its_end_and_its_partial_usage(faulty: Any, key: Any) -> None:
    async def body(recorder: Any, _: Any) -> None:
        begun = asyncio.Event()

        async def send(attempt: ModelAttempt) -> None:
            attempt.used(TokenUsage(output_tokens=3))
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(ModelRequestObserver(recorder).call("m").attempt(send))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await recorder.flush()

    kind, ended = run(faulty, key, body)[-1]
    assert kind == "model/request_ended"
    assert (ended["outcome"], ended["usage"]) == ("cancelled", {"output_tokens": 3})


class Refusing:
    """A recorder that fails at its n-th event."""

    def __init__(self, fail_at: int, error: StatebookError) -> None:
        self._fail_at, self._error = fail_at, error
        self.types: list[str] = []

    def append(self, type: str, payload: Any, *, flush: bool = False, required: bool = False) -> None:  # noqa: A002
        self._take(type)

    async def record(self, type: str, payload: Any, *, required: bool = False) -> Any:  # noqa: A002
        self._take(type)

    def _take(self, kind: str) -> None:
        self.types.append(kind)
        if len(self.types) == self._fail_at:
            raise self._error


@pytest.mark.parametrize("error", [WriterFenced("fenced"), OutcomeUnknown("?"), Overloaded("full")])
@pytest.mark.parametrize(("fail_at", "asked"), [(1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("wraps", [False, True])
def test_a_failed_recording_triggers_no_provider_retry_whatever_the_loop_catches(
    error: StatebookError, fail_at: int, asked: int, wraps: bool
) -> None:
    requests = 0

    async def send(attempt: ModelAttempt) -> str:
        nonlocal requests
        requests += 1
        try:
            attempt.used(TokenUsage(input_tokens=1))
        except ModelRecordingFailed as failed:
            if wraps:
                raise ProviderDown("stream broke") from failed
            raise
        return "answer"

    async def main() -> None:
        call = ModelRequestObserver(Refusing(fail_at, error)).call("m")
        with pytest.raises(ModelRecordingFailed) as caught:
            await naive_retry(lambda: call.attempt(send), tries=5)
        assert caught.value.__cause__ is error
        assert caught.value.retry is Retry.NEVER

    asyncio.run(main())
    assert requests == asked


def test_a_recorder_that_has_stopped_lets_no_further_call_ask_the_provider(faulty: Any, key: Any) -> None:
    async def body(recorder: Any, _: Any) -> None:
        async def send(attempt: ModelAttempt) -> None:
            raise AssertionError("nobody is to be asked")

        observer = ModelRequestObserver(recorder)
        faulty.inner.claim(key, "successor")
        for call_id in ("m1", "m2"):
            with pytest.raises(ModelRecordingFailed):
                await observer.call(call_id).attempt(send)

    assert run(faulty, key, body) == []


@pytest.mark.parametrize(
    ("error", "refused"), [(WriterFenced("x"), True), (OutcomeUnknown("x"), True), (Overloaded("x"), False)]
)
def test_an_error_that_stops_a_recorder_stops_all_calls_and_a_full_one_only_its_own(
    error: StatebookError, refused: bool
) -> None:
    async def send(attempt: ModelAttempt) -> str:
        return "answer"

    async def main() -> None:
        recorder = Refusing(1, error)
        observer = ModelRequestObserver(recorder)
        with pytest.raises(ModelRecordingFailed):
            await observer.call("m1").attempt(send)
        if refused:
            with pytest.raises(ModelRecordingFailed):
                await observer.call("m2").attempt(send)
        else:
            assert await observer.call("m2").attempt(send) == "answer"
        assert len(recorder.types) == (1 if refused else 3)

    asyncio.run(main())


def test_when_transport_and_recording_both_fail_the_recording_is_what_the_loop_sees() -> None:
    async def send(attempt: ModelAttempt) -> None:
        raise ProviderDown

    async def main() -> None:
        call = ModelRequestObserver(Refusing(2, Overloaded("full"))).call("m")
        with pytest.raises(ModelRecordingFailed) as caught:
            await call.attempt(send)
        assert isinstance(caught.value.__cause__, Overloaded)
        assert caught.value.__notes__ == ["the attempt itself had failed: ProviderDown"]
        with pytest.raises(ModelRecordingFailed):
            await call.attempt(send)
        assert call.attempts == 1

    asyncio.run(main())


def test_replaying_a_committed_result_creates_no_request(faulty: Any, key: Any) -> None:
    committed = models.ModelEnd(call_id="m", message={"role": "assistant"})

    async def body(recorder: Any, _: Any) -> None:
        async def make(call: Any) -> models.ModelEnd:
            async def send(attempt: ModelAttempt) -> models.ModelEnd:
                return committed

            return await call.attempt(send)  # type: ignore[no-any-return]

        observer = ModelRequestObserver(recorder)
        assert await observer.result(observer.call("m"), committed, make) is committed
        assert faulty.inner.head(key).last_seq == 0
        with pytest.raises(ValueError, match="'m'"):
            await observer.result(observer.call("other"), committed, make)
        assert await observer.result(observer.call("m"), None, make) is committed

    assert len(run(faulty, key, body)) == 2


amounts = st.none() | st.builds(
    TokenUsage, input_tokens=st.none() | st.integers(0, 99), output_tokens=st.none() | st.integers(0, 99)
)


@given(st.lists(amounts, max_size=6))
def test_a_total_counts_what_is_known_and_says_what_is_not(usages: list[TokenUsage | None]) -> None:
    total = total_usage(usages)
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        known = [getattr(usage, name) for usage in usages if usage is not None and getattr(usage, name) is not None]
        assert getattr(total.known, name) == (sum(known) if known else None)
    assert total.requests == len(usages)
    assert total.unknown == sum(usage is None or usage == TokenUsage() for usage in usages)
