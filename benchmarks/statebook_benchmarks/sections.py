"""The parts of a page that show figures beside the raw engine, and peers."""

from __future__ import annotations

from html import escape

from statebook_benchmarks import peers_table
from statebook_benchmarks.environment import Environment
from statebook_benchmarks.figures_table import MEASURES, FiguresResult, measures_of
from statebook_benchmarks.goals import judge_figures, judge_peers
from statebook_benchmarks.goals_table import goals_cards
from statebook_benchmarks.page import card, table
from statebook_benchmarks.peers.sidebyside import PeersResult


def figures_section(result: FiguresResult) -> str:
    """Figures beside the raw engine, and what they say of the goals.

    Args:
        result: What `bench figures` wrote.

    Returns:
        HTML.
    """
    verdict = '<span class="bad">INVALID</span>' if result.findings else '<span class="good">valid</span>'
    rows = [(figure.backend, figure.promise, figure.case.name, *measures_of(figure)) for figure in result.figures]
    head = ("backend", "durability", "case", *MEASURES)
    titles = "; ".join(dict.fromkeys(f"{figure.case.name}: {figure.case.title}" for figure in result.figures))
    cards = card("Figures", table(head, rows), titles) + goals_cards(judge_figures(result.figures))
    return f"<h2>Beside the raw engine, {verdict}</h2>{where(result.environment, result.command)}{_stack(cards)}"


def peers_section(result: PeersResult) -> str:
    """Peers side by side, what each promises, and what they say of the goals.

    Args:
        result: What `bench peers` wrote.

    Returns:
        HTML.
    """
    rows = [(figure.medium, figure.case, figure.name, *peers_table.measures_of(figure)) for figure in result.figures]
    head = ("medium", "case", "store", *peers_table.MEASURES)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions)
    promises = "".join(
        f"<p><strong>{escape(name)}</strong>: {escape(text)}</p>"
        for name, text in dict.fromkeys((figure.name, figure.promises) for figure in result.figures)
    )
    left_out = "".join(
        f'<p class="warn">{escape(name)} was left out: {escape(why)}</p>' for name, why in result.missing
    )
    cards = (
        card("Peers", table(head, rows), versions)
        + goals_cards(judge_peers(result.figures))
        + card("What each promises", promises)
    )
    return f"<h2>Beside what people use today</h2>{where(result.environment, result.command)}{left_out}{_stack(cards)}"


def where(environment: Environment, command: str) -> str:
    """Where results come from, whether anything else ran there, and the command that repeats them."""
    noisy = "" if environment.isolated else '<p class="warn">Other work ran on this machine.</p>'
    return f'<p class="soft">{escape(environment.line())}</p>{noisy}<p><code>{escape(command)}</code></p>'


def _stack(cards: str) -> str:
    return f'<div class="stack">{cards}</div>'
