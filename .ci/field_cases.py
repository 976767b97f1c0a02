"""Write docs/field-cases.md: each incident from the field, and the rules and tests that cover it.

Rules name the cases that they cover at the end of their docstring (`Cases: 1, 40.`), tests in theirs (`Case 34`).
`python .ci/field_cases.py` writes the page, `--check` only compares. Needs the packages on the path.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from statebook_conformance.rules import all_rules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "field-cases.md"

CASES: dict[str, tuple[str, ...]] = {
    "Lost updates, versions, fencing": (
        "two instances save from one version: one turn is gone, both were told success",
        "an unconditional save writes, then raises",
        "value and version are read by two commands, a writer comes between",
        "a writer that slept through a takeover reloads and goes on",
        "a deleted lease starts again at 0, an old token is valid again",
        "staleness judged by time stamps: two saves in one tick, a clock set back",
        "read, filter, write back: concurrent appends are lost",
    ),
    "Lists and batches": (
        "an edited item in the middle, a shortened list, an empty list: not saved",
        "the third event of a batch fails: two stay, the transaction stays open",
        "a batch sent twice is stored twice; the same id with other content is ignored",
        "events and their checkpoint in two commits, killed in between",
    ),
    "Order and pages": (
        "fifty events in one clock tick come back in any order",
        "n+1 becomes visible before n, a poller never sees n",
        "a limit of -1, 0 or 10,001 means something else everywhere; 1,500 become 1,000",
        "a paused iterator over a listing blocks every writer",
    ),
    "Keys and isolation": (
        "separators, wildcards, braces and prefixes mix up ids",
        "ids that are paths or device names; links in the root",
        "ids that look like internal names, or like another id's encoding",
        "case, accents, full width and trailing spaces under a collation",
        "a delete misses its keys and reports success",
        "planted constructor dictionaries and pickles in the raw medium",
    ),
    "Values": (
        "lone surrogates, U+0000, 4-byte characters",
        "NaN, infinities, -0.0, integers beyond 2**53",
        "the caller changes what was saved, or what was loaded",
        "values of 1 byte to 70 MB, a server that takes 4 MB",
    ),
    "Crashes": (
        "killed in a write loop: a file of half length or none",
        "a cut last record: the next one is glued on, or seq starts again at 1",
        "two processes that each cache the next seq",
        "two writers share one temporary file",
    ),
    "Engines": (
        "`database is locked` with many processes and a held snapshot",
        "sixteen first opens of a new database at once",
        "an idle connection is killed, the next call fails",
        "a reader polls for ever in its first snapshot",
        "keys of one thread in several slots; a listing of one master only",
        "an instance lists from its own cache",
        "`mode=x` that overwrites; an endpoint that ignores conditions",
        "a client that sends again stores twice, or conflicts with itself",
        "a cancelled task: a lost batch, a drained pool, a kept lock",
        "synchronous I/O on the event loop",
        "a stale save brings a deleted session back",
        "growth without bound",
    ),
    "Journals, logs and exporters": (
        "a writer is stopped before its commit, another takes over, trims and collects",
        "a lost reply is taken for a conflict, and the client deletes what the head references",
        "a read says absent, the batch is written elsewhere, then the late request lands",
        "409 once to a create and once to a conditional write",
        "equal head bytes A, B, A on a store whose tokens are content hashes",
        "a sink fails at k, later ones succeed, k is skipped for ever",
        "an old exporter overwrites a newer one's cursor",
        "a crash in the middle of a batch, the cursor was kept by batch",
        "an old head under a newer cursor; a journal trimmed past a cursor",
        "the same batch id with events swapped or changed",
        "a failover loses seconds, the old epoch is given out again",
        "one flipped bit; a deleted head",
        "EIO at the n-th fsync",
        "creators deadlock on missing rows; a lock-wait time-out leaves half a transaction",
        "a collector goes on after its barrier was lost",
        "two executors run one thread, the loser goes on",
        "a deleted journal's receipts outlive it",
    ),
}


def covered_by_rules() -> dict[int, list[str]]:
    """The rules that cover each case."""
    found: dict[int, list[str]] = {}
    for rule in all_rules():
        match = re.search(r"(?:\A|\s)Cases?: ([0-9,\s]+)\.\s*\Z", rule.text)
        for number in re.findall(r"[0-9]+", match[1]) if match else ():
            found.setdefault(int(number), []).append(f"`{rule.id}`")
    return found


def covered_by_tests() -> dict[int, list[str]]:
    """The tests that cover each case."""
    found: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for numbers in re.findall(r"\bCases? ([0-9][0-9, ]*)", ast.get_docstring(node) or ""):
                    for number in re.findall(r"[0-9]+", numbers):
                        name = path.relative_to(ROOT).as_posix()
                        found.setdefault(int(number), []).append(f"[{node.name}](../{name})")
    return found


def page() -> str:
    """The whole page."""
    rules, tests = covered_by_rules(), covered_by_tests()
    lines = [
        "# Incidents from the field, and what covers them",
        "",
        "Each was reported by people who run session, checkpoint or event stores, or was reproduced on one.",
        "A rule holds for every backend that is certified; a test holds for one engine or service of ours. Written by",
        "`python .ci/field_cases.py` from the docstrings of rules and tests.",
        "",
    ]
    number = 0
    for chapter, titles in CASES.items():
        lines += [f"## {chapter}", "", "| case | what happened | covered by |", "| --- | --- | --- |"]
        for title in titles:
            number += 1
            cover = ", ".join(rules.get(number, []) + tests.get(number, [])) or "**nothing yet**"
            lines.append(f"| {number} | {title} | {cover} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/field-cases.md is not up to date; run: python .ci/field_cases.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    open_cases = re.findall(r"^\| ([0-9]+) .*nothing yet", text, re.MULTILINE)
    print(f"{PAGE.name}: cases without cover: {', '.join(open_cases) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
