"""What a store does with conditions, found out by racing it at open (ATOM-7).

Endpoints that look like S3 have been met that ignore conditions, and others that test and then write. Both lose
acknowledged writes without a word, so nothing is opened on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import Barrier
from typing import Final

import msgspec

from statebook.errors import BackendUnavailable, InvalidConfiguration, StatebookError
from statebook_backends.s3.names import BACKEND
from statebook_backends.s3.writers import Found, Lost, ObjectEngine, Unsure

_RACERS: Final = 8
_TRIES_MAX: Final = 5
_START_WITHIN_S: Final = 30.0


class ProbeReport(msgspec.Struct, frozen=True):
    """What was found out.

    Attributes:
        removes: Whether a DELETE with a condition is honoured too, so that heads can be removed (`Feature.PURGE`).
        ordered: Whether listings come in byte order and begin behind a given key.
        server: What the endpoint calls itself.
    """

    removes: bool
    ordered: bool
    server: str


class _Probe:
    """One run of the probe in a directory of its own."""

    def __init__(self, engine: ObjectEngine, directory: str, place: str, new_nonce: Callable[[], str]) -> None:
        self._writer = engine.writer
        self._objects = engine.objects
        self._directory = directory
        self._place = place
        self._new_nonce = new_nonce
        self._server = engine.server

    def run(self) -> ProbeReport:
        """Probe, and clean up whatever comes of it."""
        try:
            with ThreadPoolExecutor(_RACERS, thread_name_prefix="statebook-probe") as pool:
                # Before anything is written: some stores make a bucket that is missing when an object is put.
                self._pages(self._directory)
                self._empty()
                self._race(pool, f"{self._directory}race")
                self._absent()
                removes = self._removes(pool)
            return ProbeReport(removes, self._ordered(), self._server())
        finally:
            with suppress(StatebookError):
                self._objects.delete(self._pages(self._directory))

    # --------------------------------------------------------------------------------------------------- conditions

    def _empty(self) -> None:
        """A create over an existing object is refused, also where one of them is empty."""
        path = f"{self._directory}empty"
        if isinstance(self._write(path, b"", None), Lost):
            raise self._refused("says that an object exists that does not")
        for data in (b"", b"other"):
            if not isinstance(self._write(path, data, None), Lost) or self._read(path).data != b"":
                raise self._refused("ignores If-None-Match: a create replaced an object")

    def _race(self, pool: ThreadPoolExecutor, path: str) -> None:
        first = self._one_winner(pool, path, None, "If-None-Match")
        if isinstance(self._write(path, b"over", None), Lost):
            second = self._one_winner(pool, path, first, "If-Match")
        else:
            raise self._refused("ignores If-None-Match: a create replaced an object")
        if not isinstance(self._write(path, b"stale", first), Lost) or self._read(path).version != second:
            raise self._refused("ignores If-Match: a write with an old ETag replaced an object")
        fresh = self._writer.read(path, first)
        if not isinstance(fresh, Found) or fresh.version != second:
            raise self._refused("answers a conditional read with an old version")
        known = self._writer.read(path, second)
        if known is None or (isinstance(known, Found) and known.version != second):
            raise self._refused("does not show what was just written")

    def _one_winner(self, pool: ThreadPoolExecutor, path: str, expected: str | None, condition: str) -> str:
        contents = [f"{index}-{self._new_nonce()}".encode() for index in range(_RACERS)]
        answers = self._together(pool, [partial(self._write, path, content, expected) for content in contents])
        won = [(contents[index], answer) for index, answer in enumerate(answers) if not isinstance(answer, Lost)]
        found = self._read(path)
        if len(won) != 1:
            raise self._refused(f"lets {len(won)} of {_RACERS} racing writes with one {condition} succeed")
        if found.data != won[0][0] or found.version != won[0][1]:
            raise self._refused(f"shows another object than the one whose {condition} succeeded")
        return found.version

    def _absent(self) -> None:
        path = f"{self._directory}absent"
        some = self._read(f"{self._directory}race").version
        if not isinstance(self._write(path, b"absent", some), Lost) or self._writer.read(path) is not None:
            raise self._refused("ignores If-Match where there is no object")

    def _removes(self, pool: ThreadPoolExecutor) -> bool:
        """Race removals against writes and each other: of all, one may succeed."""
        path = f"{self._directory}remove"
        try:
            stale = self._made(path, None)
            current = self._made(path, stale)
            if self._writer.remove(path, stale) or self._read(path).version != current:
                return False
            mixed: list[Callable[[], object]] = [partial(self._remove, path, current) for _ in range(_RACERS // 2)]
            mixed += [partial(self._write, path, b"%d" % index, current) for index in range(_RACERS // 2)]
            answers = self._together(pool, mixed)
            if sum(answer is True or isinstance(answer, str) for answer in answers) != 1:
                return False
            if self._writer.read(path) is None:
                return not self._remove(path, current)
            current = self._read(path).version
            answers = self._together(pool, [partial(self._remove, path, current) for _ in range(_RACERS)])
            return answers.count(True) == 1 and self._writer.read(path) is None and not self._remove(path, current)
        except (BackendUnavailable, Unsure):
            return False

    def _made(self, path: str, expected: str | None) -> str:
        answer = self._write(path, self._new_nonce().encode(), expected)
        if isinstance(answer, Lost):
            raise self._refused("refuses a write whose condition is met")
        return answer

    def _remove(self, path: str, expected: str) -> bool:
        return self._writer.remove(path, expected)

    # ----------------------------------------------------------------------------------------------------- listings

    def _ordered(self) -> bool:
        names = [f"{self._directory}order/{name}" for name in ("a!head", "a-b!head", "a-b/c!head", "a/c!head")]
        wanted = sorted(names)
        for name in reversed(wanted):
            self._write(name, b"", None)
        directory = f"{self._directory}order/"
        listed = self._pages(directory)
        if sorted(listed) != wanted:
            raise self._refused("does not list what was just written")
        behind = self._pages(directory, wanted[1])
        return listed == wanted and behind == wanted[2:]

    # ------------------------------------------------------------------------------------------------------- inside

    def _pages(self, directory: str, after: str | None = None) -> list[str]:
        return list(chain.from_iterable(self._objects.pages(directory, after)))

    def _together(self, pool: ThreadPoolExecutor, calls: Sequence[Callable[[], object]]) -> list[object]:
        barrier = Barrier(len(calls))

        def racing(call: Callable[[], object]) -> object:
            barrier.wait(_START_WITHIN_S)
            return call()

        futures = [pool.submit(racing, call) for call in calls]
        return [future.result() for future in futures]

    def _write(self, path: str, data: bytes, expected: str | None) -> str | Lost:
        """Write; what has no answer is settled by reading, and sent again where it has not landed.

        The condition makes it harmless to send it again: should the first one land late, the second one loses to it.
        """
        doubt: Unsure | None = None
        for _ in range(_TRIES_MAX):
            answer: str | Lost | None = None
            try:
                answer = self._writer.write(path, data, expected)
            except Unsure as error:
                doubt = error
            if isinstance(answer, str):
                return answer
            if doubt is not None:
                found = self._writer.read(path)
                if isinstance(found, Found) and found.data == data and data:
                    return found.version
            if answer is not None:
                return answer
        raise BackendUnavailable(f"{self._place} leaves writes undecided; try again", backend=BACKEND) from doubt

    def _read(self, path: str) -> Found:
        found = self._writer.read(path)
        if not isinstance(found, Found):
            raise self._refused("does not show what was just written")
        return found

    def _refused(self, why: str) -> InvalidConfiguration:
        return InvalidConfiguration(
            f"{self._place} {why}; writes would be lost there without a word. Use a store that honours If-Match and "
            "If-None-Match atomically",
            option="endpoint_url",
            backend=BACKEND,
        )


def probe(engine: ObjectEngine, directory: str, place: str, new_nonce: Callable[[], str]) -> ProbeReport:
    """Find out what a store does with conditions.

    Guarantees ATOM-7: an endpoint that ignores conditions, or tests them and then writes, is refused.

    Args:
        engine: The store.
        directory: A path that ends with `/`; a directory of a random name is used below it, and removed.
        place: What the store is called in messages.
        new_nonce: Fresh randomness.

    Returns:
        What may be declared.

    Raises:
        InvalidConfiguration: The store cannot carry journals; says why.
        BackendUnavailable: It does not answer.
        Unsure: It did not answer a write.
    """
    return _Probe(engine, f"{directory}{new_nonce()}/", place, new_nonce).run()
