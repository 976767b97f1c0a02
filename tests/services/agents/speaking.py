"""What tests of sessions say and look at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from statebook import StateKey
from statebook.agents import AGENT_STATE_KEY, SessionCall


def said(*texts: str) -> tuple[dict[str, Any], ...]:
    return tuple({"role": "user", "content": text} for text in texts)


def say(call: SessionCall, *texts: str) -> None:
    call.state = call.state.model_copy(update={"context": (*call.state.context, *said(*texts))})


def slot(session_id: str, user_id: str | None = None) -> StateKey:
    return StateKey(user_id, session_id, AGENT_STATE_KEY)


def run(program: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(program, 60))


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for is another thread's, or has no event
        await asyncio.sleep(0)
