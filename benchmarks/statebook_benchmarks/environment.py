"""Where a run took place: machine, system, versions, load. No names of people, hosts or directories."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

LIBRARIES: Final = ("statebook", "msgspec", "pydantic", "redis", "pymysql", "boto3", "botocore", "fsspec")
"""The libraries whose versions bear on figures."""


class Environment(msgspec.Struct, frozen=True):
    """Where a run took place.

    Attributes:
        started_at: The date and time, ISO 8601 in UTC.
        system: Operating system and release.
        machine: The processor architecture.
        processor: The processor's model, or an empty text.
        cores: How many cores this process may use.
        memory_bytes: The memory of the machine, or None where the system does not tell.
        python: The version of Python and its implementation.
        load_before: The load average of one minute at the start, or None.
        load_after: The same at the end.
        libraries: Installed libraries with their versions.
    """

    started_at: str
    system: str
    machine: str
    processor: str
    cores: int
    memory_bytes: int | None
    python: str
    load_before: float | None
    load_after: float | None
    libraries: tuple[tuple[str, str], ...]

    @property
    def isolated(self) -> bool:
        """Whether hardly anything else ran when it began."""
        return self.load_before is not None and self.load_before < self.cores / 4

    def line(self) -> str:
        """One line for a table's head."""
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes / 2**30:.1f} GiB"
        load = "unknown" if self.load_before is None else f"{self.load_before:.1f}"
        after = "" if self.load_after is None else f" to {self.load_after:.1f}"
        model = f", {self.processor}" if self.processor else ""
        return (
            f"{self.started_at} · {self.system} {self.machine}{model}, {self.cores} cores{memory} · "
            f"{self.python} · load {load}{after}"
        )


def environment(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Environment:
    """Describe this machine at this moment.

    Args:
        now: Gives date and time.

    Returns:
        The description.
    """
    return Environment(
        started_at=now().isoformat(timespec="seconds"),
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load_before=load(),
        load_after=None,
        libraries=tuple(_libraries()),
    )


def load() -> float | None:
    """The load average of one minute, or None where the system has none."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return ""


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _libraries() -> list[tuple[str, str]]:
    found = []
    for name in LIBRARIES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def import_time_ms(module: str = "statebook", tries: int = 5) -> float:
    """How long `import` of a module takes in a fresh Python, by `-X importtime`: the median, in milliseconds.

    Args:
        module: The module.
        tries: How often.

    Returns:
        Milliseconds, with everything that the module imports.

    Raises:
        ValueError: Python did not report the module.
    """
    return median(_import_once(module) for _ in range(tries))


def _import_once(module: str) -> float:
    command = (sys.executable, "-X", "importtime", "-c", f"import {module}")
    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return parse_importtime(finished.stderr, module)


def parse_importtime(report: str, module: str) -> float:
    """Read the cumulative time of a module, in milliseconds, from what `-X importtime` writes.

    Raises:
        ValueError: The module is not in it.
    """
    for line in reversed(report.splitlines()):
        fields = line.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[2].strip() == module:
            return int(fields[1]) / 1_000
    raise ValueError(f"no import time of {module} was reported")
