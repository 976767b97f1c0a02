"""A failed history as a picture: one line a client, one bar a call, the first illegal operation marked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from statebook_conformance.checkers.history import History, Operation

_WIDTH: Final = 1_000
_LABEL: Final = 150
_ROW: Final = 24
_AROUND: Final = 40


def timeline(history: History, marked: Sequence[int]) -> str:
    """Draw the operations around the marked ones.

    Args:
        history: The history.
        marked: The indices of the operations that show the violation; the first is marked as the first illegal one.

    Returns:
        An SVG element.
    """
    shown = _window(history, marked)
    if not shown:
        return ""
    start = min(operation.call_ns for operation in shown)
    end = max(operation.return_ns or operation.call_ns for operation in shown)
    scale = (_WIDTH - _LABEL - 20) / max(1, end - start)
    clients = list(dict.fromkeys(operation.process for operation in shown))
    height = _ROW * len(clients) + 30
    pieces: list[str] = []
    pieces.append(
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="timeline of {len(shown)} operations of {len(clients)} clients">'
    )
    for row, client in enumerate(clients):
        y = row * _ROW + 20
        pieces.append(f'<text x="0" y="{y + 4}">{escape(client[:22])}</text>')
        pieces.append(f'<line class="lane" x1="{_LABEL}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>')
        pieces += [_bar(operation, y, start, scale, marked) for operation in shown if operation.process == client]
    pieces.append("</svg>")
    return "".join(pieces)


def _window(history: History, marked: Sequence[int]) -> tuple[Operation, ...]:
    operations = history.operations
    if not marked:
        return operations[-2 * _AROUND :]
    first, last = min(marked), max(marked)
    near = operations[max(0, first - _AROUND) : first + _AROUND] if last - first > 2 * _AROUND else ()
    chosen = near or operations[max(0, first - _AROUND // 2) : last + _AROUND // 2]
    extra = tuple(operations[index] for index in marked if operations[index] not in chosen)
    return (*chosen, *extra)


def _bar(operation: Operation, y: int, start: int, scale: float, marked: Sequence[int]) -> str:
    x = _LABEL + (operation.call_ns - start) * scale
    end = operation.return_ns or operation.call_ns
    width = max(3.0, (end - operation.call_ns) * scale)
    kind = "first" if operation.index in marked else operation.outcome.value
    milliseconds = (end - operation.call_ns) / 1e6
    text = (
        f"#{operation.index} {operation.op} {operation.key} {operation.outcome.value} {milliseconds:.3f} ms "
        f"in: {dict(operation.input)} out: {operation.output}"
    )
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y - 7}" width="{width:.1f}" height="14" rx="2">'
        f"<title>{escape(text[:400])}</title></rect>"
    )
