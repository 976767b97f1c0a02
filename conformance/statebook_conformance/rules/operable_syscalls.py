"""Level 4: how often a call waits for the disk, seen from outside of the process (HEAD-5)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from statebook_conformance.context import Context
from statebook_conformance.faults.trace import FLUSHES, Life, Traced, moved_target, trace
from statebook_conformance.rule import rule
from statebook_conformance.rules.faults_trace import directory_of_lives

SYNCS: Final = 6
"""How often a writing call may wait for the disk."""

NAMES: Final = 24
"""How many files a call may open, make, rename and remove, together."""

_WORKER: Final = "statebook_conformance.workers_operable:traced_calls"
_NAMING: Final = frozenset(
    {
        *("openat", "open", "creat", "rename", "renameat", "renameat2", "unlink", "unlinkat"),
        *("mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink", "symlinkat"),
    }
)
_READING: Final = frozenset({"head", "read"})


def _counts(life: Traced) -> dict[str, Counter[str]]:
    """For each call that a life has told, how often it made which system call."""
    begun: dict[str, int] = {}
    found: dict[str, Counter[str]] = {}
    for mark in life.marks:
        if "begins" in mark.fields:
            begun[str(mark.fields["begins"])] = mark.at
        elif "ends" in mark.fields:
            name = str(mark.fields["ends"])
            found[name] = Counter(call.name for call in life.calls[begun[name] : mark.at])
    return found


@rule(
    "HEAD-5.budget-of-syscalls",
    level=4,
    hint="each part of a commit is flushed by itself, or each call opens its files anew",
    kills=("flushes-in-vain", "opens-every-time", "read-waits-for-disk"),
    floor={"calls": 12},
)
def syscall_budget(ctx: Context) -> None:
    """A writing call waits for the disk six times at most, a read never; no call opens or renames more than 24 files.

    A process makes each call again with handles that have made it before, seen call by call from outside, so that
    libraries in C are counted too. A store whose server writes the files is not claimed: they are the server's.
    """
    with directory_of_lives() as root:
        target = moved_target(ctx.target.text, root)
        (life,) = trace(_WORKER, ctx.namespace, [Life(target)])
    for name, counts in _counts(life).items():
        syncs = sum(counts[call] for call in FLUSHES)
        names = sum(counts[call] for call in _NAMING)
        most = 0 if name in _READING else SYNCS
        ctx.check(syncs <= most, f"{name} waits {syncs} times for the disk, at most {most}")
        ctx.check(names <= NAMES, f"{name} opens, makes, renames and removes {names} files, at most {NAMES}")
        ctx.saw("calls")
        ctx.saw(f"{name}: waits for the disk", syncs)
        if names:
            ctx.saw(f"{name}: files opened or renamed", names)
