"""The frame of a report page: one file, no script, nothing fetched, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; --back: #fcfcfb; --text: #1c1c1a; --soft: #6b6a66; --line: #e3e2dd; --card: #ffffff;
  --good: #1a7f4b; --bad: #b3261e; --warn: #8a5a00;
  --c0: #2a6fdb; --c1: #d9692b; --c2: #2f9460; --c3: #a44bc4; --c4: #b8921a; --c5: #c43d6b; --c6: #2d95a8; --c7: #777; }
@media (prefers-color-scheme: dark) { :root { --back: #161615; --text: #eceae4; --soft: #a3a199; --line: #34332f;
  --card: #1f1f1d; --good: #5cc48d; --bad: #f2897f; --warn: #e0b354; --c0: #6ea3f5; --c1: #ee935c; --c2: #63c495;
  --c3: #c98be0; --c4: #d9bb57; --c5: #ea7fa2; --c6: #66c3d4; --c7: #aaa; } }
body { margin: 0 auto; max-width: 1180px; padding: 24px 20px 64px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 8px 0 4px; } h2 { font-size: 19px; margin: 40px 0 6px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 4px 0; } .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.warn { color: var(--warn); }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.grid-of { display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 16px; margin-top: 14px;
  align-items: start; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; min-width: 0;
  overflow-x: auto; }
.stack { display: grid; grid-template-columns: minmax(0, 1fr); gap: 16px; margin-top: 14px; }
.stack figure { max-width: 640px; }
.wide { overflow-x: auto; margin-top: 14px; }
figure { margin: 6px 0 0; } svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: 5px 7px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
.words { text-align: left; }
th { color: var(--soft); font-weight: 500; white-space: normal; vertical-align: bottom; }
.grid { stroke: var(--line); } .axis, .whisker { stroke: var(--soft); } .whisker { stroke-width: 2; }
.tick, .title { fill: var(--soft); font-size: 12px; } .title { font-size: 12.5px; }
path { fill: none; stroke-width: 2; stroke-linejoin: round; }
.legend { display: flex;
  flex-wrap: wrap; gap: 2px 16px; list-style: none; margin: 4px 0 0; padding: 0; font-size: 13px; }
.legend li::before { content: "";
  display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px;
  background: currentColor; }
"""


def _colours() -> str:
    rules = []
    for number in range(8):
        rules.append(f"path.s{number} {{ stroke: var(--c{number}); }}")
        rules.append(f"circle.s{number}, rect.s{number} {{ fill: var(--c{number}); }}")
        rules.append(f".legend .s{number}::before {{ background: var(--c{number}); }}")
    return "\n".join(rules)


def document(title: str, body: str) -> str:
    """A whole page.

    Args:
        title: Its title.
        body: What stands in it, as HTML.

    Returns:
        The page.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{_colours()}</style></head><body>{body}</body></html>\n"
    )


def card(title: str, content: str, note: str = "") -> str:
    """A titled box; an empty text where it has no content."""
    if not content:
        return ""
    below = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f'<section class="card"><h3>{escape(title)}</h3>{content}{below}</section>'


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table; an empty text where it has no row."""
    if not rows:
        return ""
    words = [any(row[place][:1].isalpha() for row in rows) for place in range(len(head))]
    marks = [' class="words"' if word else "" for word in words]
    cells = "".join(f"<th{mark}>{escape(name)}</th>" for mark, name in zip(marks, head, strict=True))
    lines = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'
