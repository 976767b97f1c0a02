"""Mutants of leaks: what a close or a failure leaves behind, each of them seen in a driver or a plugin (ERR-4)."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from typing import IO, Any, Final

from statebook.errors import BackendUnavailable, HeadConflict, StatebookError
from statebook.journal import ThreadJournalStore
from statebook.model import Batch, Receipt, WriterClaim
from statebook.plugins import Requirement
from statebook_conformance.mutants.forward import ForwardBackend
from statebook_conformance.mutants.mutant import Mutant
from statebook_conformance.mutants.wrapping import BadJournal, Memory, wrapping

_LEFT: Final[list[Any]] = []
"""What was left behind in this process."""

_LOCK: Final = "locked"


class _Connected(BadJournal):
    """Connects at open, and lets go of nothing at close."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        _LEFT.append(socket.socketpair())


class _Filed(BadJournal):
    """Opens a log of its own, and leaves it open."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - that is the leak
        _LEFT.append(log)


def _wait_for_ever() -> threading.Event:
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True, name="left-behind").start()
    return stop


class _Threaded(BadJournal):
    """Starts a thread that no close ends."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        _LEFT.append(_wait_for_ever())


class _Scratching(BadJournal):
    """Probes the file system with a scratch file, and does not remove it."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(b"probe")
        atexit.register(os.unlink, file.name)  # as long as anybody looks, it is there


class _Registered(BadJournal):
    """Puts itself on a list of handles at open, and stays there."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        _LEFT.append([self, {"handle": [id(self)]}])


class _Helped(BadJournal):
    """Starts a helper process for the first handles, and waits for none."""

    def __init__(self, inner: ThreadJournalStore, memory: Memory) -> None:
        super().__init__(inner, memory)
        count = memory.kept["opens"] = memory.kept.get("opens", 0) + 1
        if count in (2, 100):
            # It ends when its standard input does: with this process.
            helper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
            _LEFT.append(helper)

    def close(self) -> None:
        self.inner.close()


class _FileAfterFailure(BadJournal):
    """Spills a batch into a file before it appends, and closes that only where the append succeeds."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        spill: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - that is the leak
        _LEFT.append(spill)
        receipt = self.inner.append(claim, batch, base_seq)
        spill.close()
        return receipt


class _ThreadAfterFailure(BadJournal):
    """Watches each append with a thread, and ends it only where the append succeeds."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        stop = _wait_for_ever()
        receipt = self.inner.append(claim, batch, base_seq)
        stop.set()
        return receipt


class _LockAfterFailure(BadJournal):
    """Gives the lock of a journal back on all ways out but one: a conflict."""

    def append(self, claim: WriterClaim, batch: Batch, base_seq: int) -> Receipt:
        owner = self.memory.kept.get(_LOCK)
        if owner is not None and owner is not self:
            raise BackendUnavailable("the journal is locked", key=claim.key.name)
        self.memory.kept[_LOCK] = self
        try:
            receipt = self.inner.append(claim, batch, base_seq)
        except HeadConflict:
            raise
        except StatebookError:
            self.memory.kept[_LOCK] = None
            raise
        self.memory.kept[_LOCK] = None
        return receipt


class _RefusedStaysOpen(ForwardBackend):
    """Judges what is required behind the open, and leaves the store open that it refuses."""

    def open_journal(self, require: Iterable[Requirement] = ()) -> ThreadJournalStore:
        wanted = tuple(require)
        connection = socket.socketpair()
        if wanted:
            _LEFT.append(connection)
        else:
            for end in connection:
                end.close()
        return self.inner.open_journal(wanted)


CONNECTION_LEFT: Final = Mutant(
    "connection-left-at-close", "close() forgets the connection instead of closing it", wrapping(journal=_Connected)
)
FILE_LEFT: Final = Mutant("file-left-at-close", "close() leaves a file of its own open", wrapping(journal=_Filed))
THREAD_LEFT: Final = Mutant("thread-left-at-close", "close() does not end a thread", wrapping(journal=_Threaded))
SCRATCH_LEFT: Final = Mutant(
    "temporary-file-left", "a probe at open leaves its scratch file behind", wrapping(journal=_Scratching)
)
HANDLE_KEPT: Final = Mutant(
    "handle-kept-for-ever", "each handle stays on a list of handles, such as of hooks", wrapping(journal=_Registered)
)
PROCESS_LEFT: Final = Mutant(
    "process-left-at-close", "a helper process is started and never waited for", wrapping(journal=_Helped)
)
FILE_AFTER_FAILURE: Final = Mutant(
    "file-left-after-a-failure", "an append that fails leaves its file open", wrapping(journal=_FileAfterFailure)
)
THREAD_AFTER_FAILURE: Final = Mutant(
    "thread-left-after-a-failure",
    "an append that fails leaves its watcher running",
    wrapping(journal=_ThreadAfterFailure),
)
LOCK_AFTER_FAILURE: Final = Mutant(
    "lock-left-after-a-failure",
    "a conflict leaves the lock with the handle that met it",
    wrapping(journal=_LockAfterFailure),
)
REFUSED_STAYS_OPEN: Final = Mutant(
    "refused-open-stays-open",
    "an open that is refused for what is required leaves the connection open",
    _RefusedStaysOpen,
)
