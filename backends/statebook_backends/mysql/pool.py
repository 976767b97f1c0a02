"""A bounded pool of sessions. A call borrows one; it comes back clean or not at all (ERR-4)."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from statebook.errors import BackendUnavailable, InvalidConfiguration, Overloaded, StoreClosed
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.store import Link

if TYPE_CHECKING:
    from ssl import SSLContext


class Pool:
    """Sessions, each used by one call at a time. Safe from many threads.

    A session that the server has left while it was idle is replaced when it is borrowed: its socket is looked at, and
    after a longer pause the server is asked.
    """

    def __init__(
        self, options: MysqlOptions, tls: SSLContext | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make an empty pool.

        Args:
            options: How to connect, and the pool's bounds.
            tls: What TLS needs, or None.
            clock: Monotonic time in seconds.
        """
        self._options = options
        self._tls = tls
        self._clock = clock
        self._idle: list[Link] = []
        self._free: SimpleQueue[None] = SimpleQueue()  # a place for each session: cheaper than a Semaphore
        for _ in range(options.pool_max):
            self._free.put(None)
        self._closed = False

    @property
    def idle(self) -> tuple[Link, ...]:
        """The sessions that nobody uses."""
        return tuple(self._idle)

    def take(self, *, fresh: bool = False) -> tuple[Link, bool]:
        """Borrow a session; give it back.

        Args:
            fresh: Open a new one whatever is idle.

        Returns:
            The session, and whether it is a new one.

        Raises:
            Overloaded: All are in use for longer than `pool_timeout_s`.
            BackendUnavailable: The server does not answer, or refuses what it took before.
            StoreClosed: The pool was closed.
        """
        try:
            self._free.get(timeout=self._options.pool_timeout_s)
        except Empty:
            raise Overloaded(
                f"all {self._options.pool_max} connections of this store are in use; try again, or raise pool_max",
                backend="mysql",
            ) from None
        link: Link | None = None
        try:
            if self._closed:
                raise StoreClosed("the store was closed while this call waited", backend="mysql")
            while self._idle and link is None:
                link = self._checked(self._pop(), fresh=fresh)
            if link is not None:
                return link, False
            link = self._opened()
            return link, True
        finally:
            if link is None:
                self._free.put(None)

    def _opened(self) -> Link:
        try:
            return Link(self._options, self._tls)
        except InvalidConfiguration as error:
            # What was right when the store was opened is the server's to set right again.
            raise BackendUnavailable(f"{error.message}; nothing was applied", backend="mysql") from error.__cause__

    def adopt(self, link: Link) -> None:
        """Take up a session that was opened elsewhere, in no transaction and used by nobody."""
        link.idle_since = self._clock()
        self._idle.append(link)

    def _pop(self) -> Link | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _checked(self, link: Link | None, *, fresh: bool) -> Link | None:
        if link is None:
            return None
        idle_s = self._clock() - link.idle_since
        if fresh or link.is_stale(idle_s=idle_s, ping_after_s=self._options.ping_after_s):
            link.close()
            return None
        return link

    def give(self, link: Link, *, clean: bool) -> None:
        """Give a session back.

        Args:
            link: The session.
            clean: Whether it is in no transaction and answers; else it is dropped, and the server rolls back.
        """
        if clean and not self._closed:
            link.idle_since = self._clock()
            self._idle.append(link)
        else:
            link.close()
        self._free.put(None)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        self._closed = True
        while (link := self._pop()) is not None:
            link.close()
