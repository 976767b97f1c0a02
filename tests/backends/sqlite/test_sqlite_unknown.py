"""A claim whose reply was lost, and whose outcome cannot be looked up either."""

from __future__ import annotations

from typing import NoReturn

import pytest

from statebook import BackendUnavailable, OutcomeUnknown, ThreadJournalStore, ThreadKey


def test_a_claim_that_cannot_be_settled_stays_unknown_and_is_not_called_unapplied(
    journal: ThreadJournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_reply(*_: object) -> NoReturn:
        raise OutcomeUnknown("the commit was not confirmed")

    def gone(_: ThreadKey) -> NoReturn:
        raise BackendUnavailable("the disk does not answer")

    monkeypatch.setattr(journal, "_run", lose_the_reply)
    monkeypatch.setattr(journal, "head", gone)

    with pytest.raises(OutcomeUnknown) as caught:
        journal.claim(ThreadKey("user", "agent", "session", "thread"), "writer")

    assert isinstance(caught.value.__cause__, BackendUnavailable)
