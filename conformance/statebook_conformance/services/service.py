"""A service: one or more servers that together are what a backend's URL names."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from statebook_conformance.services.server import Server, ServiceUnavailable


class Service(ABC):
    """Servers in one directory, as a context manager.

    Started on entry, ended on exit; the directory is removed when all went well.

    Attributes:
        name: What users call it, such as `redis` or `redis-cluster`.
        emulated: Whether it only looks like the real thing.
    """

    name: ClassVar[str]
    emulated: ClassVar[bool] = False

    def __init__(self, *, keep_logs: bool = False) -> None:
        """Make the directory; starts nothing.

        Args:
            keep_logs: Keep the directory even where all went well.
        """
        self.directory = Path(tempfile.mkdtemp(prefix=f"statebook-{self.name}-"))
        self.servers: list[Server] = []
        self._keep_logs = keep_logs

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that opens a store on it; it may hold a password."""

    @property
    @abstractmethod
    def provider(self) -> str:
        """Where the server came from, for the certificate, such as `local redis-server 7.0.15`."""

    @abstractmethod
    def start(self) -> None:
        """Start all servers and wait until they answer as one.

        Raises:
            ServiceUnavailable: A binary is missing.
            ServerFailed: A server did not start.
        """

    def stop(self) -> None:
        """End all servers, the last one first."""
        for server in reversed(self.servers):
            server.stop()

    @property
    def data_servers(self) -> tuple[Server, ...]:
        """The servers that hold data; others only watch over them."""
        return tuple(self.servers)

    def kill(self) -> None:
        """Kill the servers that hold data with SIGKILL, all at once."""
        for server in self.data_servers:
            server.kill()

    def shut_down(self) -> None:
        """Ask the servers that hold data to end, and wait until they have."""
        for server in reversed(self.data_servers):
            server.stop()

    def recover(self) -> None:
        """Start the servers that hold data again, on the same ports and data, and wait until they serve.

        Raises:
            ServerFailed: One did not start.
        """
        for server in self.data_servers:
            server.start()

    def pause(self) -> None:
        """Stop the servers that hold data with SIGSTOP."""
        for server in self.data_servers:
            server.pause()

    def resume(self) -> None:
        """Let them go on."""
        for server in self.data_servers:
            server.resume()

    def __enter__(self) -> Self:
        """Start it; what was started is ended again where that fails."""
        try:
            self.start()
        except BaseException as error:
            for server in reversed(self.servers):
                server.kill()
            if isinstance(error, ServiceUnavailable):
                shutil.rmtree(self.directory, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; the directory with the logs stays where something went wrong."""
        self.stop()
        if error is None and not self._keep_logs:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _directory(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir(parents=True, exist_ok=True)
        return path
