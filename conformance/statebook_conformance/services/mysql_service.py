"""MariaDB, or MySQL where its server is the one that is found: one server with a data directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from statebook_conformance.services.server import Server, ServerFailed, find_binary, free_port
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
        text = _run([str(_server()), "--no-defaults", "--version"])
        words = text.split()
        version = words[words.index("Ver") + 1] if "Ver" in words else "unknown"
        return f"local mariadbd {version.partition('-')[0]}"

    def start(self) -> None:
        binary = _server()
        data = self._directory("data")
        if not self.servers:
            os.chmod(self.directory, 0o755)  # noqa: S103 - the server runs as another user, and must reach its data
            if os.geteuid() == 0:
                entry = pwd.getpwnam("mysql")
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
            *("--auth-root-authentication-method=normal", "--skip-test-db", *_as_user()),
        ]
        _run(command)

    def _server(self, binary: Path, data: Path) -> Server:
        directory = self._directory("log")
        command = [
            *(str(binary), "--no-defaults", f"--datadir={data}", f"--socket={self.socket}", f"--port={self.port}"),
            *("--bind-address=127.0.0.1", "--skip-name-resolve", f"--pid-file={self.directory / 'mysql.pid'}"),
            *("--innodb-buffer-pool-size=64M", "--max-connections=300", *_as_user(), *self._settings),
        ]
        return Server("mariadbd", command, directory=directory, port=self.port, ready=self._greets, ready_within_s=60.0)

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
        return _run([str(client), "--no-defaults", "-N", "-u", "root", f"--socket={self.socket}", "-e", sql])


def _server() -> Path:
    return find_binary("mariadbd", install=_INSTALL)


def _as_user() -> tuple[str, ...]:
    return ("--user=mysql",) if os.geteuid() == 0 else ()


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ServerFailed(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-1_000:]}")
    return done.stdout


def mysql_is_there() -> bool:
    """Tell whether a server binary can be found."""
    return shutil.which("mariadbd", path=os.environ.get("PATH", "") + ":/usr/sbin") is not None
