"""The nine statuses of a rule, worst first, and how a group of them is summed up."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Status(Enum):
    """What became of a rule. Members are ordered from the worst to the best.

    `ERROR`: the suite itself broke. `VACUOUS`: the rule checked nothing. `FAIL`: the contract is broken. `FLAKY`: it
    failed and passed with the same seed. `INCONCLUSIVE`: too little was seen to say anything. `UNAVAILABLE`: a service
    or tool is missing. `WAIVED`: failed, and somebody has said in writing why that is accepted. `NOT_CLAIMED`: the
    backend does not declare what the rule is about, and refuses it cleanly. `PASS`: checked, with enough evidence.
    """

    ERROR = "error"
    VACUOUS = "vacuous"
    FAIL = "fail"
    FLAKY = "flaky"
    INCONCLUSIVE = "inconclusive"
    UNAVAILABLE = "unavailable"
    WAIVED = "waived"
    NOT_CLAIMED = "not_claimed"
    PASS = "pass"  # noqa: S105 - a status, no secret

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Status).index(self)

    @property
    def grants(self) -> bool:
        """Whether a level may be granted over a mandatory rule with this status."""
        return self in (Status.PASS, Status.NOT_CLAIMED)


def worst(statuses: Iterable[Status]) -> Status:
    """Sum up a group: it is never greener than its worst member.

    Args:
        statuses: The members' statuses.

    Returns:
        The worst one; `VACUOUS` for an empty group, which has checked nothing.
    """
    return min(statuses, key=lambda status: status.rank, default=Status.VACUOUS)
