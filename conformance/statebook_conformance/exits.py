"""The exit statuses of `statebook conformance`, so that a CI can tell a failure from a missing service."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1
"""A rule failed."""
EXIT_USAGE: Final = 2
"""The command or the target is wrong."""
EXIT_UNAVAILABLE: Final = 3
"""A service or driver is missing."""
EXIT_SUITE: Final = 4
"""The suite itself broke."""
