"""What a server is and how it is set up: refused, or declared (ATOM-7, DUR)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from statebook.capabilities import Capabilities, Durability, Feature, Limits, Sharing
from statebook.errors import InvalidConfiguration
from statebook_backends.mysql.errors import Failure, classify_opening
from statebook_backends.mysql.options import MysqlOptions
from statebook_backends.mysql.sql import GROWTH, Sql
from statebook_backends.mysql.store import Link, driver_version, where

_VARIABLES: Final = "SHOW SESSION VARIABLES WHERE Variable_name IN (?)"
_ASKED: Final = (
    *("version", "version_comment", "max_allowed_packet", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin"),
    *("binlog_format", "innodb_doublewrite", "read_only", "super_read_only", "innodb_read_only", "tx_isolation"),
    *("transaction_isolation", "autocommit", "sql_mode", "character_set_connection", "wsrep_on"),
)
_ISOLATION: Final = "READ-COMMITTED"
_OVERHEAD: Final = 65_536
_PACKET_MIN: Final = 1_048_576
_GROUP_ROOM: Final = 16 * 1_024 * 1_024
_ON: Final = frozenset({"1", "ON", "YES", "TRUE"})


class Server:
    """The settings of a server, as a session sees them.

    Attributes:
        capabilities: What a store on it declares.
        request_bytes_max: How large one request may be.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Judge the settings.

        Args:
            variables: Their names and values.

        Raises:
            InvalidConfiguration: The server cannot carry a store as it is; names the setting and the remedy.
        """
        self._variables = variables
        self._refuse()
        packet = int(variables.get("max_allowed_packet", "0"))
        if packet < _PACKET_MIN:
            raise _refused("max_allowed_packet", f"is {packet}; set it to {_PACKET_MIN} or more")
        self.request_bytes_max = min(packet - _OVERHEAD, _GROUP_ROOM)
        largest = int((packet - 2 * _OVERHEAD) / GROWTH)
        self.capabilities = self._declare(largest)

    def _is_on(self, name: str) -> bool:
        return self._variables.get(name, "OFF").upper() in _ON

    def _refuse(self) -> None:
        variables = self._variables
        for name in ("read_only", "super_read_only", "innodb_read_only"):
            if self._is_on(name) or variables.get(name, "").upper().startswith(("NO_LOCK", "READ_ONLY")):
                raise _refused(name, "is on, as on a replica; name the primary", option="host")
        isolation = variables.get("transaction_isolation") or variables.get("tx_isolation", "unknown")
        if isolation != _ISOLATION:
            raise _refused("transaction_isolation", f"stays {isolation}; let this user set READ COMMITTED")
        if self._is_on("log_bin") and variables.get("binlog_format", "ROW").upper() == "STATEMENT":
            raise _refused("binlog_format", "is STATEMENT, which READ COMMITTED does not allow; set it to ROW")
        if self._is_on("wsrep_on"):
            raise _refused("wsrep_on", "is on: members of a Galera cluster may read what others have replaced; use one")
        if "NO_BACKSLASH_ESCAPES" in variables.get("sql_mode", ""):
            raise _refused("sql_mode", "keeps NO_BACKSLASH_ESCAPES; let this user set it")

    def _declare(self, largest: int) -> Capabilities:
        variables = self._variables
        flush = variables.get("innodb_flush_log_at_trx_commit", "unknown")
        sync = variables.get("sync_binlog", "unknown")
        weak: list[str] = []
        if flush != "1":
            weak.append(f"innodb_flush_log_at_trx_commit={flush}")
        if variables.get("innodb_doublewrite", "ON").upper() in {"OFF", "0", "DETECT_ONLY"}:
            weak.append("innodb_doublewrite=OFF")
        if self._is_on("log_bin") and sync != "1":
            weak.append(f"sync_binlog={sync}")
        strong = "innodb_flush_log_at_trx_commit=1" + (", sync_binlog=1" if self._is_on("log_bin") else "")
        version = variables.get("version", "unknown")
        facts = {
            "driver": f"pymysql {driver_version()}",
            "durability": ", ".join(weak) or strong,
            "isolation": _ISOLATION,
            "max_allowed_packet": variables.get("max_allowed_packet", "unknown"),
            "server": variables.get("version_comment", "unknown"),
            "mariadb" if "mariadb" in version.lower() else "mysql": version,
        }
        usual = Limits()
        return Capabilities(
            backend="mysql",
            durability=Durability.PROCESS if weak else Durability.HOST,
            durability_setting=facts["durability"],
            sharing=Sharing.NETWORK,
            features=frozenset({Feature.PURGE, Feature.GROUP_COMMIT, Feature.RECEIPTS_KEPT}),
            limits=Limits(
                value_bytes_max=min(usual.value_bytes_max, largest - _OVERHEAD),
                batch_bytes_max=min(usual.batch_bytes_max, largest),
            ),
            server=tuple(sorted(facts.items())),
        )


def examine(link: Link, sql: Sql, options: MysqlOptions) -> Server:
    """Read a server's settings through a session that is set up, and judge them.

    Args:
        link: The session.
        sql: Renders statements.
        options: For errors.

    Returns:
        The server.

    Raises:
        InvalidConfiguration: It cannot carry a store as it is.
        BackendUnavailable: It does not answer.
    """
    try:
        rows = link.run((sql(_VARIABLES, _ASKED),))[0].rows
    except Failure as failure:
        raise classify_opening(failure, where(options)) from failure.__cause__
    return Server({str(name): str(value) for name, value in rows})


def _refused(setting: str, text: str, *, option: str = "url") -> InvalidConfiguration:
    return InvalidConfiguration(f"the server's {setting} {text}", option=option, backend="mysql")
