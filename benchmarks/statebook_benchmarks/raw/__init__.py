"""The floor: each engine through its client library, doing the same fenced work at the same durability, and no more."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Final, cast

from statebook import MissingDriver, StoreUrl
from statebook_benchmarks.raw.engine import RawEngine, RawLane

_ENGINES: Final = MappingProxyType(
    {
        "memory": ("memory", "MemoryEngine", None),
        "file": ("jsonfile", "FileEngine", None),
        "sqlite": ("sqlite", "SqliteEngine", None),
        "redis": ("redis", "RedisEngine", "redis"),
        "mysql": ("mysql", "MysqlEngine", "mysql"),
        "s3": ("s3", "S3Engine", "s3"),
    }
)

__all__ = ["RawEngine", "RawLane", "raw_engine"]


def raw_engine(url: StoreUrl, name: str, threads: int) -> RawEngine | None:
    """Open the raw engine behind a store URL, in tables, keys or directories of its own.

    Args:
        url: The URL of the store that it is measured beside.
        name: A fresh name, for what it makes.
        threads: How many threads it shall have room for.

    Returns:
        The engine, ready for appends; or None where there is none for this scheme.

    Raises:
        MissingDriver: Its client library is not installed.
    """
    known = _ENGINES.get(url.scheme)
    if known is None:
        return None
    module, made, extra = known
    try:
        engine = getattr(import_module(f"{__name__}.{module}"), made)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        install = f'pip install "statebook[{extra}]"'
        raise MissingDriver(f"the module {error.name!r} is not installed; run: {install}", install=install) from error
    return cast(RawEngine, engine(url, name, threads))
