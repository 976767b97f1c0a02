"""Oracle's MySQL: the other server that users of the MySQL backend run, where one can be found.

Where the system has MariaDB, the two packages exclude each other. MySQL then needs no installing: download
`mysql-server-core`, `mysql-client-core` and the libraries that they depend on (`apt-get download`, from Debian's
unstable suite), unpack each with `dpkg-deb -x PACKAGE FOLDER`, and name the folder in `STATEBOOK_MYSQL_ORACLE_HOME`.
The folder must be readable by the user `mysql` where the suite runs as root.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import ClassVar, Final

from statebook_conformance.services.mysql_service import MysqlService, as_user, run, server_version
from statebook_conformance.services.server import ServerFailed, ServiceUnavailable, find_binary

HOME: Final = "STATEBOOK_MYSQL_ORACLE_HOME"
"""The variable that names a folder with the server: Oracle's archive, or Debian's packages, unpacked."""

_FOLDERS: Final = (".", "bin", "sbin", "usr/bin", "usr/sbin")
_INSTALL: Final = f"unpack Oracle's MySQL 8.4 or 9, or Debian's mysql-server-core, and name the folder in {HOME}"


class OracleMysqlService(MysqlService):
    """One server of Oracle's MySQL, set up as the MariaDB one is.

    A folder of unpacked packages may bring its own loader and libraries, of a newer system than this one; they are
    used then.
    """

    name: ClassVar[str] = "mysql-oracle"

    @property
    def provider(self) -> str:
        return f"local mysqld {server_version(self._said(self._binary()))}"

    def _binary(self) -> Path:
        binary = find_binary("mysqld", install=_INSTALL, folders=_folders())
        if "mariadb" in self._said(binary).lower():
            raise ServiceUnavailable("the mysqld here is MariaDB's", install=_INSTALL)
        return binary

    def _said(self, binary: Path) -> str:
        return run([*_loaded(binary), "--no-defaults", "--version"])

    def _words(self, binary: Path) -> tuple[str, ...]:
        base = () if (home := _home_of(binary)) is None else (f"--basedir={home}",)
        return (*_loaded(binary), "--no-defaults", *base, "--mysqlx=OFF", "--secure-file-priv=NULL")

    def _install(self, data: Path) -> None:
        run([*self._words(self._binary()), "--initialize-insecure", f"--datadir={data}", *as_user()])

    def execute(self, sql: str) -> str:
        """Run SQL as `root`, with the client that came with the server, else with pymysql.

        Args:
            sql: Statements.

        Returns:
            What they gave, tab-separated.

        Raises:
            ServerFailed: The server refused it.
        """
        client = shutil.which("mysql", path=os.pathsep.join(map(str, _folders())))
        if client is None:
            return self._ask(sql)
        words = [*_loaded(Path(client)), "--no-defaults", "-N", "-u", "root", f"--socket={self.socket}", "-e", sql]
        return run(words)

    def _ask(self, sql: str) -> str:
        import pymysql  # type: ignore[import-untyped]
        from pymysql.constants import CLIENT  # type: ignore[import-untyped]

        lines: list[str] = []
        try:
            connection = pymysql.connect(
                unix_socket=str(self.socket), user="root", client_flag=CLIENT.MULTI_STATEMENTS, autocommit=True
            )
            with connection, connection.cursor() as cursor:
                more = cursor.execute(sql) is not None
                while more:
                    lines.extend("\t".join(map(str, row)) + "\n" for row in cursor.fetchall())
                    more = bool(cursor.nextset())
        except pymysql.MySQLError as error:
            raise ServerFailed(f"the server refused SQL: {error}") from error
        return "".join(lines)


def _folders() -> tuple[Path, ...]:
    home = os.environ.get(HOME)
    return tuple(Path(home).resolve() / folder for folder in _FOLDERS) if home else ()


def _home_of(binary: Path) -> Path | None:
    """The server's own base folder, where it is one that the environment names."""
    if binary.parent not in _folders():
        return None
    return binary.parent.parent if binary.parent.name in {"bin", "sbin"} else binary.parent


def _loaded(binary: Path) -> tuple[str, ...]:
    """How a program is started: by its own path, or by the loader that was unpacked beside it."""
    folders = _folders()
    if binary.parent in folders:
        for loader in sorted(folders[0].glob("usr/lib/*-linux-gnu*/ld-linux-*.so.*")):
            return (str(loader), "--library-path", str(loader.parent), str(binary))
    return (str(binary),)
