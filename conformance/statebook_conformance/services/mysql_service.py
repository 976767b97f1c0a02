"""MariaDB: one server with a data directory of its own."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from statebook_conformance.services.server import Server, ServerFailed, ServiceUnavailable, find_binary, free_port
from statebook_conformance.services.service import Service

_INSTALL: Final = "install Debian's mariadb-server"


class MysqlService(Service):
    """One MariaDB server; the user `root` has no password, the user `statebook` has one and owns the database."""

    name: ClassVar[str] = "mysql"
    user: ClassVar[str] = "statebook"
    password: ClassVar[str] = "statebook-test"  # noqa: S105 - a server on loopback that lives for a test
    database: ClassVar[str] = "statebook"

    def __init__(self, *, settings: Sequence[str] = (), keep_logs: bool = False) -> None:
        """Describe it.

        Args:
            settings: Further options of the server, such as `("--max-allowed-packet=4M",)`.
            keep_logs: Keep the directory even where all went well.
        """
        super().__init__(keep_logs=keep_logs)
        self._settings = tuple(settings)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"mysql://{self.user}:{self.password}@127.0.0.1:{self.port}/{self.database}"

    @property
    def socket(self) -> Path:
        """The server's local socket, through which `root` may enter without a password."""
        return self.directory / "mysql.sock"

    @property
    def provider(self) -> str:
        return f"local mariadbd {server_version(run([str(self._binary()), '--no-defaults', '--version']))}"

    def _binary(self) -> Path:
        return find_binary("mariadbd", install=_INSTALL)

    def start(self) -> None:
        binary = self._binary()
        data = self._directory("data")
        if not self.servers:
            os.chmod(self.directory, 0o755)  # noqa: S103 - the server runs as another user, and must reach its data
            if os.geteuid() == 0:
                entry = _account()
                os.chown(self.directory, entry.pw_uid, entry.pw_gid)
                os.chown(data, entry.pw_uid, entry.pw_gid)
            self._install(data)
            self.servers.append(self._server(binary, data))
        self.servers[0].start()
        self._create_database()

    def _install(self, data: Path) -> None:
        installer = find_binary("mariadb-install-db", install=_INSTALL)
        command = [
            *(str(installer), "--no-defaults", f"--datadir={data}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db", *as_user()),
        ]
        run(command)

    def _server(self, binary: Path, data: Path) -> Server:
        directory = self._directory("log")
        command = [
            *(*self._words(binary), f"--datadir={data}", f"--socket={self.socket}", f"--port={self.port}"),
            *("--bind-address=127.0.0.1", "--skip-name-resolve", f"--pid-file={self.directory / 'mysql.pid'}"),
            *("--innodb-buffer-pool-size=64M", "--max-connections=300", *as_user(), *self._settings),
        ]
        return Server(
            binary.name, command, directory=directory, port=self.port, ready=self._greets, ready_within_s=60.0
        )

    def _words(self, binary: Path) -> tuple[str, ...]:
        """How the server's command begins."""
        return (str(binary), "--no-defaults")

    def _greets(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
            return len(connection.recv(64)) > 4

    def _create_database(self) -> None:
        self.execute(
            f"CREATE DATABASE IF NOT EXISTS {self.database};"
            f"CREATE USER IF NOT EXISTS '{self.user}'@'%' IDENTIFIED BY '{self.password}';"
            f"GRANT ALL ON {self.database}.* TO '{self.user}'@'%';"
        )

    def execute(self, sql: str) -> str:
        """Run SQL as `root`, without a driver, so that none is under test.

        Args:
            sql: Statements.

        Returns:
            What the client printed, tab-separated.

        Raises:
            ServerFailed: The server refused it.
        """
        client = find_binary("mariadb", install="install Debian's mariadb-client")
        return run([str(client), "--no-defaults", "-N", "-u", "root", f"--socket={self.socket}", "-e", sql])


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("mysql")
    except KeyError as error:
        raise ServiceUnavailable("no server runs as root, and there is no user mysql", install=_INSTALL) from error


def as_user() -> tuple[str, ...]:
    """The option by which a server that root starts runs as the user `mysql`."""
    return ("--user=mysql",) if os.geteuid() == 0 else ()


def server_version(text: str) -> str:
    """The version in what a server prints of itself: `mysqld  Ver 9.7.4 for Linux`."""
    words = text.split()
    return words[words.index("Ver") + 1].partition("-")[0] if "Ver" in words else "unknown"


def run(command: Sequence[str]) -> str:
    """Run a command to its end.

    Args:
        command: Its words.

    Returns:
        What it printed.

    Raises:
        ServerFailed: It failed; the end of what it said is in the message.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ServerFailed(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-1_000:]}")
    return done.stdout
