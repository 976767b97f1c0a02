"""Two certificates side by side: what got worse, what got better, what appeared, what vanished, what is only other.

Works over releases: a rule that only one of the two rule sets has is never counted as better or worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, cast

import msgspec
from rich.console import Console
from rich.markup import escape

from statebook.capabilities import Durability, Feature, Sharing
from statebook_conformance.rule import LEVELS
from statebook_conformance.statuses import Status

_ORDERED: Final[Mapping[str, tuple[str, ...]]] = {
    "durability": tuple(item.value for item in Durability),
    "sharing": tuple(item.value for item in Sharing),
}
_ABSENT: Final = "absent"
_PAIRS: Final[Mapping[str, str]] = {"server": "server", "libraries": "library"}


class Turn(Enum):
    """Which way something went. Members are ordered as they are shown."""

    WORSE = "worse"
    BETTER = "better"
    APPEARED = "appeared"
    VANISHED = "vanished"
    OTHER = "other"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two certificates.

    Attributes:
        turn: Which way it went.
        what: `level`, `rule`, `provisional rule`, `claim`, `environment`, `effort`, `canary`, `waiver`, `profile` or
            `subject`.
        name: Which one.
        old: What the first certificate says, in words.
        new: What the second one says.
    """

    turn: Turn
    what: str
    name: str
    old: str
    new: str


def compare(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Change, ...]:
    """Compare two certificates.

    Args:
        old: The first certificate, as `read_certificate` gives it.
        new: The second one.

    Returns:
        The differences: worse ones first, then as `Turn` orders them. Empty where nothing that counts differs.
    """
    changes = [
        *_subject(old, new),
        *_profile(old, new),
        *_level(old, new),
        *_claims(_part(old, "claims"), _part(new, "claims")),
        *_rules(old, new),
        *_canaries(old, new),
        *_waivers(old, new),
        *_environment(_part(old, "environment"), _part(new, "environment")),
        *_effort(cast("int", old.get("effort", 1)), cast("int", new.get("effort", 1))),
    ]
    turns = list(Turn)
    return tuple(sorted(changes, key=lambda change: turns.index(change.turn)))


def got_worse(changes: Iterable[Change]) -> bool:
    """Whether anything got worse."""
    return any(change.turn is Turn.WORSE for change in changes)


def _part(certificate: Mapping[str, object], name: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", certificate[name])


def _turn(better: bool | None) -> Turn:  # noqa: FBT001 - private
    return Turn.OTHER if better is None else Turn.BETTER if better else Turn.WORSE


def _subject(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    for name in ("backend", "target", "distribution", "version"):
        before, after = (_shown(_part(side, "subject").get(name) or None) for side in (old, new))
        if before != after:
            yield Change(turn=Turn.OTHER, what="subject", name=name, old=before, new=after)


def _profile(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    before, after = _profile_words(old), _profile_words(new)
    if before != after:
        yield Change(turn=Turn.OTHER, what="profile", name="rule set", old=before, new=after)


def _profile_words(certificate: Mapping[str, object]) -> str:
    stated = cast("Mapping[str, object] | None", certificate.get("profile"))
    if stated is None:
        digest = str(_part(certificate, "rule_set")["digest"])
        return f"not named, of statebook {_part(certificate, 'environment')['statebook']} ({digest[:12]})"
    return f"{stated['name']} of statebook {stated['release']} ({str(stated['digest'])[:12]})"


def _level(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    before, after = (cast("int | None", _part(side, "level")["granted"]) for side in (old, new))
    if before != after:
        better = (-1 if after is None else after) > (-1 if before is None else before)
        yield Change(
            turn=_turn(better), what="level", name="granted", old=_level_words(before), new=_level_words(after)
        )
    tried_before, tried_after = (cast("int", _part(side, "level")["attempted"]) for side in (old, new))
    if tried_before != tried_after:
        yield Change(
            turn=Turn.OTHER,
            what="level",
            name="attempted",
            old=_level_words(tried_before),
            new=_level_words(tried_after),
        )


def _level_words(level: int | None) -> str:
    return "none" if level is None else f"{level} {LEVELS[level]}"


# ------------------------------------------------------------------------------------------------------------ claims


def _claims(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    for name, order in _ORDERED.items():
        before, after = str(old[name]), str(new[name])
        if before != after:
            better = order.index(after) > order.index(before)
            yield Change(turn=_turn(better), what="claim", name=name, old=before, new=after)
    if old["durability_setting"] != new["durability_setting"]:
        yield Change(
            turn=Turn.OTHER,
            what="claim",
            name="durability setting",
            old=str(old["durability_setting"]),
            new=str(new["durability_setting"]),
        )
    features_before, features_after = (frozenset(cast("Sequence[str]", side["features"])) for side in (old, new))
    for name in sorted(features_before ^ features_after):
        gained = name in features_after
        neutral = name == Feature.COLLECT.value  # says that there is something to collect: neither better nor worse
        words = ("not declared", "declared") if gained else ("declared", "not declared")
        yield Change(
            turn=_turn(None if neutral else gained), what="claim", name=f"feature {name}", old=words[0], new=words[1]
        )
    limits_before, limits_after = (cast("Mapping[str, int]", side["limits"]) for side in (old, new))
    for name in sorted(limits_before.keys() | limits_after.keys()):
        low, high = limits_before.get(name), limits_after.get(name)
        if low != high:
            more = None if low is None or high is None else high > low
            yield Change(turn=_turn(more), what="claim", name=name, old=_shown(low), new=_shown(high))


def _shown(value: object) -> str:
    if value is None:
        return _ABSENT
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# ------------------------------------------------------------------------------------------------------------- rules


def _rules(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    before, after = _by_id(old), _by_id(new)
    for rule_id in dict.fromkeys((*after, *before)):
        earlier, later = before.get(rule_id), after.get(rule_id)
        provisional = bool((later or earlier or {}).get("provisional"))
        what = "provisional rule" if provisional else "rule"
        if earlier is None or later is None:
            turn = Turn.APPEARED if earlier is None else Turn.VANISHED
            yield Change(turn=turn, what=what, name=rule_id, old=_status_words(earlier), new=_status_words(later))
            continue
        if earlier["status"] != later["status"]:
            better = None if provisional else _better(Status(earlier["status"]), Status(later["status"]))
            yield Change(
                turn=_turn(better), what=what, name=rule_id, old=_status_words(earlier), new=_status_words(later)
            )
        for name in ("level", "provisional"):
            if earlier[name] != later[name]:
                words = f"{rule_id} {name}"
                yield Change(turn=Turn.OTHER, what=what, name=words, old=str(earlier[name]), new=str(later[name]))


def _by_id(certificate: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    return {str(entry["id"]): entry for entry in cast("Sequence[Mapping[str, object]]", certificate["rules"])}


def _better(old: Status, new: Status) -> bool | None:
    """Whether a status is better; None where a waiver is all that changed: it repairs nothing."""
    before, after = _merit(old), _merit(new)
    return None if before == after else after > before


def _merit(status: Status) -> int:
    return Status.FAIL.rank if status is Status.WAIVED else status.rank


def _status_words(entry: Mapping[str, object] | None) -> str:
    if entry is None:
        return _ABSENT
    status = Status(entry["status"])
    reason = " ".join(str(entry["reason"]).split())
    return status.name if status is Status.PASS or not reason else f"{status.name}: {reason[:160]}"


def _canaries(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    before, after = _part(old, "canaries"), _part(new, "canaries")
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            turn = Turn.APPEARED if name in after else Turn.VANISHED
            yield Change(turn=turn, what="canary", name=name, old=_fate(before, name), new=_fate(after, name))
        elif bool(before[name]) != bool(after[name]):
            turn = _turn(bool(after[name]))
            yield Change(turn=turn, what="canary", name=name, old=_fate(before, name), new=_fate(after, name))


def _fate(canaries: Mapping[str, object], name: str) -> str:
    if name not in canaries:
        return _ABSENT
    return f"killed by {canaries[name]}" if canaries[name] else "survived"


def _waivers(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    before, after = _waiver_words(old), _waiver_words(new)
    for name in sorted(before.keys() | after.keys()):
        earlier, later = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if earlier != later:
            turn = Turn.APPEARED if name not in before else Turn.VANISHED if name not in after else Turn.OTHER
            yield Change(turn=turn, what="waiver", name=name, old=earlier, new=later)


def _waiver_words(certificate: Mapping[str, object]) -> dict[str, str]:
    waivers = cast("Sequence[Mapping[str, str]]", certificate.get("waivers", []))
    return {waiver["rule"]: f"until {waiver['expires']}: {waiver['reason']}" for waiver in waivers}


def _environment(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[Change]:
    before, after = _flat(old), _flat(new)
    for name in dict.fromkeys((*after, *before)):
        earlier, later = before.get(name), after.get(name)
        if earlier != later:
            turn = _turn(not later) if name == "emulated" else Turn.OTHER
            yield Change(turn=turn, what="environment", name=name, old=_shown(earlier), new=_shown(later))


def _effort(old: int, new: int) -> Iterable[Change]:
    if old != new:
        yield Change(turn=Turn.OTHER, what="effort", name="of each rule", old=str(old), new=str(new))


def _flat(environment: Mapping[str, object]) -> dict[str, object]:
    """The environment with one entry for each fact of the server and each library."""
    flat = {name: value for name, value in environment.items() if name not in _PAIRS}
    for name, word in _PAIRS.items():
        pairs = cast("Sequence[Sequence[str]]", environment.get(name, ()))
        flat |= {f"{word} {pair[0]}": pair[1] for pair in pairs}
    return flat


# ----------------------------------------------------------------------------------------------------------- showing

_HEADINGS: Final[Mapping[Turn, tuple[str, str]]] = {
    Turn.WORSE: ("bold red", "got worse"),
    Turn.BETTER: ("bold green", "got better"),
    Turn.APPEARED: ("bold cyan", "only in the second"),
    Turn.VANISHED: ("bold cyan", "only in the first"),
    Turn.OTHER: ("bold", "other"),
}


def print_comparison(console: Console, changes: Sequence[Change]) -> None:
    """Print the differences by the way they went, then one line that sums them up.

    Args:
        console: Where to.
        changes: The differences.
    """

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    for turn, (style, heading) in _HEADINGS.items():
        here = [change for change in changes if change.turn is turn]
        if here:
            say(f"[{style}]{heading}[/]")
        for change in here:
            words = f"{change.what} {change.name}: {change.old} → {change.new}"
            say(f"  {escape(words)}")
    counts = ", ".join(f"{sum(c.turn is turn for c in changes)} {_HEADINGS[turn][1]}" for turn in Turn)
    verdict = "[bold red]worse[/]" if got_worse(changes) else "[bold green]not worse[/]"
    say(f"{verdict}: {counts}")


def comparison_json(old: Mapping[str, object], new: Mapping[str, object], changes: Sequence[Change]) -> bytes:
    """The differences as JSON.

    Args:
        old: The first certificate.
        new: The second one.
        changes: Their differences.

    Returns:
        One document: both digests, whether anything got worse, and each difference.
    """
    document = {
        "statebook_comparison": 1,
        "old": old["sha256"],
        "new": new["sha256"],
        "worse": got_worse(changes),
        "changes": [msgspec.to_builtins(change) for change in changes],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1)
