"""The identifiers that broke stores in the field: legal ones, each a key of its own, and refused ones (ID-1, ID-2).

They are core's public vectors, so that a backend in another language can be checked against the same list.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TypedDict, cast


class _Name(TypedDict):
    id: str | None
    name: str


class _Refused(TypedDict):
    json: str
    why: str


class _Vectors(TypedDict):
    names: list[_Name]
    refused: list[_Refused]


@cache
def _vectors() -> _Vectors:
    text = files("statebook.vectors").joinpath("ids.json").read_text("utf-8")
    return cast("_Vectors", json.loads(text))


@cache
def legal_ids() -> tuple[str, ...]:
    """Every legal identifier of the vectors: distinct strings, of which many look alike (ID-2)."""
    return tuple(dict.fromkeys(entry["id"] for entry in _vectors()["names"] if entry["id"] is not None))


@cache
def refused_ids() -> tuple[tuple[str, str], ...]:
    """Every refused identifier of the vectors, with the reason (ID-1). Some hold lone surrogates."""
    return tuple((cast("str", json.loads(entry["json"])), entry["why"]) for entry in _vectors()["refused"])


def telling_ids() -> tuple[str, ...]:
    """A short choice of the legal ones, one for each way to mix keys up, for rules that cannot afford all of them."""
    return (
        "a",
        "ab",
        "a_b",
        "axb",
        "a%",
        "a/b",
        "a:b",
        "*",
        "[a-z]",
        "{x}",
        "..",
        "../x",
        "x ",
        "x.",
        "Alice",
        "alice",
        "\u00e9",
        "e\u0301",
        "\uff21",
        "\U0001f600",
        "x" * 511 + "a",
        "x" * 511 + "b",
    )
