"""A failed history as a picture: one line a client, one bar a call, the first illegal operation marked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from statebook_conformance.checkers.history import History, Operation
from statebook_conformance.checkers.verdict import Fact

_WIDTH: Final = 1_000
_LABEL: Final = 150
_ROW: Final = 24
_TOP: Final = 34
_AROUND: Final = 40
_TICKS: Final = 5
_TEXT_MAX: Final = 400
_LEGEND: Final = (
    ("first", "the first answer that cannot be"),
    ("part", "what it cannot be together with"),
    ("ok", "answered"),
    ("refused", "refused"),
    ("unknown", "outcome unknown"),
)


def first_fact(history: History, facts: Sequence[Fact]) -> Fact | None:
    """The fact that was complete first: before its last answer came in, nothing was wrong yet.

    Args:
        history: The history.
        facts: What a checker found.

    Returns:
        The fact, or None where there is none that names operations.
    """
    named = [fact for fact in facts if fact.operations]
    return min(named, key=lambda fact: _end(_last(history, fact.operations)), default=None)


def timeline(history: History, marked: Sequence[int]) -> str:
    """Draw the operations around the marked ones, with a legend, and say what the marked ones are.

    Args:
        history: The history.
        marked: The indices of the operations that show the violation; the one that was answered last is the first
            illegal one.

    Returns:
        HTML: a list of the marked operations, a legend and an SVG element.
    """
    shown = _window(history, marked)
    if not shown:
        return ""
    first = _last(history, marked) if marked else None
    return _named(history, marked, first) + _legend() + f"<div class=scroll>{_picture(shown, marked, first)}</div>"


def _end(operation: Operation) -> int:
    return operation.return_ns or operation.call_ns


def _last(history: History, indices: Sequence[int]) -> Operation:
    return max(
        (history.operations[index] for index in indices), key=lambda operation: (_end(operation), operation.index)
    )


def _named(history: History, marked: Sequence[int], first: Operation | None) -> str:
    if first is None:
        return ""
    rows = []
    for index in sorted(marked, key=lambda place: _end(history.operations[place])):
        operation = history.operations[index]
        kind = "first" if operation is first else "part"
        rows.append(
            f"<tr><td><span class='dot {kind}'></span>#{index}</td><td>{escape(operation.process)}</td>"
            f"<td>{escape(operation.op)}</td><td><code>{escape(_cut(_given(operation), 160))}</code></td>"
            f"<td><code>{escape(_cut(_answer(operation), 160))}</code></td></tr>"
        )
    return (
        "<div class=scroll><table class=ops><tr><th>operation</th><th>client</th><th>call</th><th>given</th>"
        f"<th>answer</th></tr>{''.join(rows)}</table></div>"
    )


def _given(operation: Operation) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in operation.input.items())
    return f"{operation.key}: {given}" if given else operation.key


def _answer(operation: Operation) -> str:
    if operation.error is not None:
        return operation.error
    return operation.outcome.value if operation.output is None else str(operation.output)


def _cut(text: str, limit: int = _TEXT_MAX) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _legend() -> str:
    items = "".join(f"<span><span class='dot {kind}'></span>{escape(text)}</span>" for kind, text in _LEGEND)
    return f"<p class=legend>{items}</p>"


# ----------------------------------------------------------------------------------------------------------- picture


def _picture(shown: Sequence[Operation], marked: Sequence[int], first: Operation | None) -> str:
    start = min(operation.call_ns for operation in shown)
    end = max(_end(operation) for operation in shown)
    scale = (_WIDTH - _LABEL - 20) / max(1, end - start)
    clients = list(dict.fromkeys(operation.process for operation in shown))
    height = _ROW * len(clients) + _TOP
    label = f"timeline of {len(shown)} operations of {len(clients)} clients"
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    pieces = [
        f'<svg {size} role="img" aria-label="{label}">',
        *_axis(start, end, scale, height),
    ]
    for row, client in enumerate(clients):
        y = row * _ROW + _TOP + 6
        pieces.append(f'<text x="0" y="{y + 4}">{escape(client[:22])}</text>')
        pieces.append(f'<line class="lane" x1="{_LABEL}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>')
        own = (operation for operation in shown if operation.process == client)
        pieces += [_bar(operation, y, start, scale, _kind(operation, marked, first)) for operation in own]
    pieces.append("</svg>")
    return "".join(pieces)


def _axis(start: int, end: int, scale: float, height: int) -> list[str]:
    pieces = []
    for tick in range(_TICKS + 1):
        at = (end - start) * tick // _TICKS
        x = _LABEL + at * scale
        anchor = "end" if tick == _TICKS else "middle" if tick else "start"
        pieces.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="16" y2="{height}"/>')
        pieces.append(f'<text class="axis" x="{x:.1f}" y="11" text-anchor="{anchor}">{at / 1e6:.3g} ms</text>')
    return pieces


def _window(history: History, marked: Sequence[int]) -> tuple[Operation, ...]:
    operations = history.operations
    if not marked:
        return operations[-2 * _AROUND :]
    first, last = min(marked), max(marked)
    near = operations[max(0, first - _AROUND) : first + _AROUND] if last - first > 2 * _AROUND else ()
    chosen = near or operations[max(0, first - _AROUND // 2) : last + _AROUND // 2]
    extra = tuple(operations[index] for index in marked if operations[index] not in chosen)
    return (*chosen, *extra)


def _kind(operation: Operation, marked: Sequence[int], first: Operation | None) -> str:
    if operation is first:
        return "first"
    return "part" if operation.index in marked else operation.outcome.value


def _bar(operation: Operation, y: int, start: int, scale: float, kind: str) -> str:
    x = _LABEL + (operation.call_ns - start) * scale
    width = max(3.0, (_end(operation) - operation.call_ns) * scale)
    milliseconds = (_end(operation) - operation.call_ns) / 1e6
    text = (
        f"#{operation.index} {operation.op} {_given(operation)} → {_answer(operation)} "
        f"({operation.outcome.value}, {milliseconds:.3f} ms)"
    )
    bar = (
        f'<rect class="{kind}" x="{x:.1f}" y="{y - 7}" width="{width:.1f}" height="14" rx="2">'
        f"<title>{escape(_cut(text))}</title></rect>"
    )
    if kind != "first":
        return bar
    middle = x + width / 2
    points = f"{middle - 5:.1f},{y - 15} {middle + 5:.1f},{y - 15} {middle:.1f},{y - 8}"
    return f'{bar}<polygon class="first" points="{points}"/>'
