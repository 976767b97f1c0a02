"""The page of a certificate: what failed, why, how to repeat it; waived and provisional rules apart."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
from made_results import LATER, RULES, TOMORROW, result_of
from rich.console import Console

from statebook_conformance.certificate import read_certificate
from statebook_conformance.checkers.history import Header, History, Operation, Outcome
from statebook_conformance.checkers.verdict import Fact
from statebook_conformance.report import chapter_table, provisional_table
from statebook_conformance.reports.matrix import matrix_markdown, matrix_page
from statebook_conformance.reports.page import RuleText, page
from statebook_conformance.reports.parts import Parts, parts_of
from statebook_conformance.reports.timeline import first_fact, timeline
from statebook_conformance.statuses import Status
from statebook_conformance.waivers import Waiver

RULES_ALL = (*RULES, LATER)


def operation(index: int, process: str, called: int, returned: int, **given: int) -> Operation:
    return Operation(
        index=index,
        process=process,
        op="save",
        key="slot <0>",
        input=given,
        call_ns=called * 1_000_000,
        return_ns=returned * 1_000_000,
        outcome=Outcome.OK,
        output={"version": index},
    )


HISTORY = History(
    header=Header(rule="STATE-4", seed=1, checker="slot"),
    operations=(
        operation(0, "a", 0, 1),
        operation(1, "b", 1, 9, expected=1),
        operation(2, "c", 2, 5, expected=1),
        operation(3, "a", 10, 12, expected=2),
        operation(4, "c", 11, 13, expected=2),
    ),
)
EARLY = Fact("STATE-4", (2, 1), "two saves on version 1")
LATE = Fact("STATE-4", (3, 4), "two saves on version 2")


def test_the_first_illegal_operation_is_the_last_one_of_what_was_wrong_first() -> None:
    assert first_fact(HISTORY, [LATE, EARLY, Fact("STATE-4", (), "nothing")]) is EARLY
    assert first_fact(HISTORY, []) is None
    picture = timeline(HISTORY, EARLY.operations)
    bars = {int(number): kind for kind, number in re.findall(r'<rect class="(\w+)"[^>]*><title>#(\d+) ', picture)}
    assert bars == {0: "ok", 1: "first", 2: "part", 3: "ok", 4: "ok"}
    assert picture.count("<polygon") == 1
    rows = re.findall(r"<span class='dot (\w+)'></span>#(\d+)</td><td>(\w)</td>", picture)
    assert rows == [("part", "2", "c"), ("first", "1", "b")]
    assert "13 ms" in picture
    assert "slot &lt;0&gt;" in picture
    assert "<0>" not in picture


def parts(make: Callable[..., Path], second: Status, later: Status) -> Parts:
    results = (
        result_of(RULES[0]),
        result_of(RULES[1], second, "two winners & <more>"),
        result_of(RULES[2], Status.FAIL, "known"),
        result_of(LATER, later, "" if later is Status.PASS else "not yet"),
    )
    waiver = Waiver(rule=RULES[2].id, reason="issue 123", expires=TOMORROW)
    return parts_of(read_certificate(make(*results, rules=RULES_ALL, waivers=(waiver,))))


def section(text: str, heading: str) -> str:
    return text.partition(f"<h2>{heading}</h2>")[2].partition("<h2>")[0]


def test_a_failed_rule_is_shown_with_its_cause_and_how_to_repeat_it(certificate: Callable[..., Path]) -> None:
    texts = {RULES[1].id: RuleText("A promise.\n\nMore of it. Cases: 1, 40.", "the usual suspect")}
    text = page(parts(certificate, Status.FAIL, Status.FAIL), texts, None)
    failed = section(text, "What failed")
    for shown in (
        RULES[1].id,
        "two winners &amp; &lt;more&gt;",
        "More of it.",
        "Usual cause: the usual suspect.",
        f"statebook conformance memory://made --rule {RULES[1].id} --seed 7",
        "Incidents from the field that it covers: 1, 40.",
    ):
        assert shown in failed
    assert "Cases:" not in failed
    more = msgspec.structs.replace(parts(certificate, Status.FAIL, Status.FAIL), effort=8)
    assert f"--rule {RULES[1].id} --seed 7 --effort 8" in page(more, texts, None)
    assert RULES[2].id not in failed
    assert LATER.id not in failed
    assert "1 of 3 rules passed" in text
    assert "1 failed; 1 waived; 1 provisional" in text
    assert "<div class='banner below'>" in text


def test_waived_and_provisional_rules_stand_apart(certificate: Callable[..., Path]) -> None:
    text = page(parts(certificate, Status.PASS, Status.FAIL), {}, None)
    assert section(text, "What failed") == ""
    waived = section(text, "Waived")
    assert f"<td>{TOMORROW}</td><td>issue 123</td>" in waived
    assert "WAIVED" in waived
    provisional = section(text, "Provisional rules")
    assert LATER.id in provisional
    assert "Level 3 (Fault-tolerant) has provisional rules only" in provisional
    assert LATER.id not in section(text, "All rules")
    assert RULES[2].id in section(text, "All rules")


def test_the_page_needs_nothing_from_outside(certificate: Callable[..., Path]) -> None:
    text = page(parts(certificate, Status.FAIL, Status.PASS), {}, None)
    assert not re.findall(r"(?:src|href)=|url\(|@import|https?:", text)
    assert "<script" not in text


def test_the_matrix_counts_provisional_rules_apart_and_names_waivers(certificate: Callable[..., Path]) -> None:
    made = [parts(certificate, Status.PASS, Status.FAIL), parts(certificate, Status.FAIL, Status.PASS)]
    rows = {line.split(" | ")[0].strip("| "): line for line in matrix_markdown(made).splitlines()}
    assert rows["APPEND"] == "| APPEND | 2 of 3 PASS, WAIVED | 1 of 3 PASS, FAIL |"
    assert rows["provisional"] == "| provisional | 0 of 1 pass | 1 of 1 pass |"
    assert rows["waived"] == f"| waived | {RULES[2].id} | {RULES[2].id} |"
    assert rows["profile"].startswith("| profile | unreleased of statebook")
    assert '<span class="s bad">1 of 3 PASS, FAIL</span>' in matrix_page(made)


def test_the_terminal_shows_provisional_rules_apart() -> None:
    console = Console(file=io.StringIO(), width=200)
    results = (result_of(RULES[2]), result_of(LATER, Status.FAIL, "not yet"))
    console.print(chapter_table(results))
    table = provisional_table(results)
    assert table is not None
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    chapters, _, apart = console.file.getvalue().partition("provisional, blocks nothing")
    assert "1 PASS" in chapters
    assert "1 provisional" in chapters
    assert "FAIL" not in chapters
    assert re.search(rf"{re.escape(LATER.id)}\s+│ FAIL\s+│ not yet", apart)
    assert provisional_table(results[:1]) is None
