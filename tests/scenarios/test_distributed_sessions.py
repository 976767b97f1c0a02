"""Two deployments share sessions over Redis: what one has saved, the other goes on with."""

from __future__ import annotations

import pytest

from statebook import StoreUrl, VersionConflict, new_id, open_state
from statebook.agents import BlockingAgentSessions, SessionOptions


def test_a_distributed_deployment_takes_a_store_that_is_shared_by_network_and_caches_nothing(redis_url: str) -> None:
    url = StoreUrl.parse(redis_url).with_option("namespace", f"sessions-{new_id()}")
    here, there = open_state(url), open_state(url)
    one, other = (BlockingAgentSessions(store, SessionOptions(distributed=True)) for store in (here, there))
    for turn, sessions in enumerate((one, other, one, other)):
        with sessions.call("..", user_id="u") as call:
            assert len(call.state.context) == turn
            call.state = call.state.model_copy(update={"context": (*call.state.context, {"turn": turn})})
    with pytest.raises(VersionConflict), one.call("..", user_id="u") as mine:  # noqa: PT012
        with other.call("..", user_id="u") as theirs:
            assert one.interrupt("..", user_id="u", message="stop")
            assert (mine.interrupt.requested, theirs.interrupt.requested) == (True, False)
            theirs.state = theirs.state.model_copy(update={"summary": "theirs"})
        mine.state = mine.state.model_copy(update={"summary": "mine"})
    assert one.read("..", user_id="u").state.summary == "theirs"
    here.close()
    there.close()
