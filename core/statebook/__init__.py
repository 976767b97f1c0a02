"""statebook: storage that one can trust under AI agents.

Open a store by URL, claim a thread's journal, append, read, save state with compare-and-set; see the README. Public
names are imported on first use, so that `import statebook` costs little and needs no driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from statebook.atomic import (
        COMMIT_CONFLICT as COMMIT_CONFLICT,
    )
    from statebook.atomic import (
        AtomicJournalStorage as AtomicJournalStorage,
    )
    from statebook.atomic import (
        CommitConflict as CommitConflict,
    )
    from statebook.atomic import (
        HeadRecord as HeadRecord,
    )
    from statebook.atomic import (
        NamePage as NamePage,
    )
    from statebook.atomic_journal import AtomicThreadJournalStore as AtomicThreadJournalStore
    from statebook.atomic_state import AtomicAgentStateStore as AtomicAgentStateStore
    from statebook.capabilities import (
        DISTRIBUTED as DISTRIBUTED,
    )
    from statebook.capabilities import (
        Capabilities as Capabilities,
    )
    from statebook.capabilities import (
        Durability as Durability,
    )
    from statebook.capabilities import (
        Feature as Feature,
    )
    from statebook.capabilities import (
        Limits as Limits,
    )
    from statebook.capabilities import (
        Sharing as Sharing,
    )
    from statebook.codec import Json as Json
    from statebook.codec import decode_value as decode_value
    from statebook.codec import encode_value as encode_value
    from statebook.errors import (
        BackendUnavailable as BackendUnavailable,
    )
    from statebook.errors import (
        BatchConflict as BatchConflict,
    )
    from statebook.errors import (
        Conflict as Conflict,
    )
    from statebook.errors import (
        CursorConflict as CursorConflict,
    )
    from statebook.errors import (
        CursorFenced as CursorFenced,
    )
    from statebook.errors import (
        CursorInvalid as CursorInvalid,
    )
    from statebook.errors import (
        CursorRegression as CursorRegression,
    )
    from statebook.errors import (
        DataError as DataError,
    )
    from statebook.errors import (
        HeadConflict as HeadConflict,
    )
    from statebook.errors import (
        InvalidBatch as InvalidBatch,
    )
    from statebook.errors import (
        InvalidConfiguration as InvalidConfiguration,
    )
    from statebook.errors import (
        InvalidInput as InvalidInput,
    )
    from statebook.errors import (
        InvalidKey as InvalidKey,
    )
    from statebook.errors import (
        InvalidValue as InvalidValue,
    )
    from statebook.errors import (
        JournalCorrupt as JournalCorrupt,
    )
    from statebook.errors import (
        JournalNotFound as JournalNotFound,
    )
    from statebook.errors import (
        JournalRegressed as JournalRegressed,
    )
    from statebook.errors import (
        LimitExceeded as LimitExceeded,
    )
    from statebook.errors import (
        MissingDriver as MissingDriver,
    )
    from statebook.errors import (
        NotFound as NotFound,
    )
    from statebook.errors import (
        OutcomeUnknown as OutcomeUnknown,
    )
    from statebook.errors import (
        Overloaded as Overloaded,
    )
    from statebook.errors import (
        Retry as Retry,
    )
    from statebook.errors import (
        StatebookError as StatebookError,
    )
    from statebook.errors import (
        StateCorrupt as StateCorrupt,
    )
    from statebook.errors import (
        StoreClosed as StoreClosed,
    )
    from statebook.errors import (
        Trimmed as Trimmed,
    )
    from statebook.errors import (
        UnknownBackend as UnknownBackend,
    )
    from statebook.errors import (
        UnsupportedCapability as UnsupportedCapability,
    )
    from statebook.errors import (
        UnsupportedFormat as UnsupportedFormat,
    )
    from statebook.errors import (
        VersionConflict as VersionConflict,
    )
    from statebook.errors import (
        WriterBusy as WriterBusy,
    )
    from statebook.errors import (
        WriterFenced as WriterFenced,
    )
    from statebook.hookspecs import hookimpl as hookimpl
    from statebook.ids import new_id as new_id
    from statebook.ids import new_nonce as new_nonce
    from statebook.journal import ThreadJournalStore as ThreadJournalStore
    from statebook.keys import (
        SessionKey as SessionKey,
    )
    from statebook.keys import (
        StateKey as StateKey,
    )
    from statebook.keys import (
        ThreadKey as ThreadKey,
    )
    from statebook.keys import (
        ThreadScope as ThreadScope,
    )
    from statebook.keys import (
        decode_name as decode_name,
    )
    from statebook.keys import (
        encode_id as encode_id,
    )
    from statebook.model import (
        ABSENT as ABSENT,
    )
    from statebook.model import (
        ANY as ANY,
    )
    from statebook.model import (
        NONE as NONE,
    )
    from statebook.model import (
        AppendRequest as AppendRequest,
    )
    from statebook.model import (
        Batch as Batch,
    )
    from statebook.model import (
        ClaimInfo as ClaimInfo,
    )
    from statebook.model import (
        CollectReport as CollectReport,
    )
    from statebook.model import (
        Event as Event,
    )
    from statebook.model import (
        EventPage as EventPage,
    )
    from statebook.model import (
        ExportCursor as ExportCursor,
    )
    from statebook.model import (
        Finding as Finding,
    )
    from statebook.model import (
        JournalHead as JournalHead,
    )
    from statebook.model import (
        KeyPage as KeyPage,
    )
    from statebook.model import (
        ListValue as ListValue,
    )
    from statebook.model import (
        Receipt as Receipt,
    )
    from statebook.model import (
        RecordedEvent as RecordedEvent,
    )
    from statebook.model import (
        SessionPage as SessionPage,
    )
    from statebook.model import (
        SlotKind as SlotKind,
    )
    from statebook.model import (
        StateValue as StateValue,
    )
    from statebook.model import (
        ThreadPage as ThreadPage,
    )
    from statebook.model import (
        VerifyReport as VerifyReport,
    )
    from statebook.model import (
        WriterClaim as WriterClaim,
    )
    from statebook.options import BackendOptions as BackendOptions
    from statebook.options import StoreUrl as StoreUrl
    from statebook.plugins import (
        installed_backends as installed_backends,
    )
    from statebook.plugins import (
        load_backend as load_backend,
    )
    from statebook.plugins import (
        open_atomic as open_atomic,
    )
    from statebook.plugins import (
        open_journal as open_journal,
    )
    from statebook.plugins import (
        open_state as open_state,
    )
    from statebook.state import AgentStateStore as AgentStateStore
    from statebook.thread import ThreadJournal as ThreadJournal

__version__: Final = "0.1.0"

_PUBLIC: Final = {
    "AtomicJournalStorage": "atomic",
    "COMMIT_CONFLICT": "atomic",
    "CommitConflict": "atomic",
    "HeadRecord": "atomic",
    "NamePage": "atomic",
    "AtomicThreadJournalStore": "atomic_journal",
    "AtomicAgentStateStore": "atomic_state",
    "Capabilities": "capabilities",
    "DISTRIBUTED": "capabilities",
    "Durability": "capabilities",
    "Feature": "capabilities",
    "Limits": "capabilities",
    "Sharing": "capabilities",
    "Json": "codec",
    "decode_value": "codec",
    "encode_value": "codec",
    "BackendUnavailable": "errors",
    "BatchConflict": "errors",
    "Conflict": "errors",
    "CursorConflict": "errors",
    "CursorFenced": "errors",
    "CursorInvalid": "errors",
    "CursorRegression": "errors",
    "DataError": "errors",
    "HeadConflict": "errors",
    "InvalidBatch": "errors",
    "InvalidConfiguration": "errors",
    "InvalidInput": "errors",
    "InvalidKey": "errors",
    "InvalidValue": "errors",
    "JournalCorrupt": "errors",
    "JournalNotFound": "errors",
    "JournalRegressed": "errors",
    "LimitExceeded": "errors",
    "MissingDriver": "errors",
    "NotFound": "errors",
    "OutcomeUnknown": "errors",
    "Overloaded": "errors",
    "Retry": "errors",
    "StateCorrupt": "errors",
    "StatebookError": "errors",
    "StoreClosed": "errors",
    "Trimmed": "errors",
    "UnknownBackend": "errors",
    "UnsupportedCapability": "errors",
    "UnsupportedFormat": "errors",
    "VersionConflict": "errors",
    "WriterBusy": "errors",
    "WriterFenced": "errors",
    "hookimpl": "hookspecs",
    "new_id": "ids",
    "new_nonce": "ids",
    "ThreadJournalStore": "journal",
    "SessionKey": "keys",
    "StateKey": "keys",
    "ThreadKey": "keys",
    "ThreadScope": "keys",
    "decode_name": "keys",
    "encode_id": "keys",
    "ABSENT": "model",
    "ANY": "model",
    "AppendRequest": "model",
    "Batch": "model",
    "ClaimInfo": "model",
    "CollectReport": "model",
    "Event": "model",
    "EventPage": "model",
    "ExportCursor": "model",
    "Finding": "model",
    "JournalHead": "model",
    "KeyPage": "model",
    "ListValue": "model",
    "NONE": "model",
    "Receipt": "model",
    "RecordedEvent": "model",
    "SessionPage": "model",
    "SlotKind": "model",
    "StateValue": "model",
    "ThreadPage": "model",
    "VerifyReport": "model",
    "WriterClaim": "model",
    "BackendOptions": "options",
    "StoreUrl": "options",
    "installed_backends": "plugins",
    "load_backend": "plugins",
    "open_atomic": "plugins",
    "open_journal": "plugins",
    "open_state": "plugins",
    "AgentStateStore": "state",
    "ThreadJournal": "thread",
}

__all__ = [
    "ABSENT",
    "ANY",
    "COMMIT_CONFLICT",
    "DISTRIBUTED",
    "NONE",
    "AgentStateStore",
    "AppendRequest",
    "AtomicAgentStateStore",
    "AtomicJournalStorage",
    "AtomicThreadJournalStore",
    "BackendOptions",
    "BackendUnavailable",
    "Batch",
    "BatchConflict",
    "Capabilities",
    "ClaimInfo",
    "CollectReport",
    "CommitConflict",
    "Conflict",
    "CursorConflict",
    "CursorFenced",
    "CursorInvalid",
    "CursorRegression",
    "DataError",
    "Durability",
    "Event",
    "EventPage",
    "ExportCursor",
    "Feature",
    "Finding",
    "HeadConflict",
    "HeadRecord",
    "InvalidBatch",
    "InvalidConfiguration",
    "InvalidInput",
    "InvalidKey",
    "InvalidValue",
    "JournalCorrupt",
    "JournalHead",
    "JournalNotFound",
    "JournalRegressed",
    "Json",
    "KeyPage",
    "LimitExceeded",
    "Limits",
    "ListValue",
    "MissingDriver",
    "NamePage",
    "NotFound",
    "OutcomeUnknown",
    "Overloaded",
    "Receipt",
    "RecordedEvent",
    "Retry",
    "SessionKey",
    "SessionPage",
    "Sharing",
    "SlotKind",
    "StateCorrupt",
    "StateKey",
    "StateValue",
    "StatebookError",
    "StoreClosed",
    "StoreUrl",
    "ThreadJournal",
    "ThreadJournalStore",
    "ThreadKey",
    "ThreadPage",
    "ThreadScope",
    "Trimmed",
    "UnknownBackend",
    "UnsupportedCapability",
    "UnsupportedFormat",
    "VerifyReport",
    "VersionConflict",
    "WriterBusy",
    "WriterClaim",
    "WriterFenced",
    "__version__",
    "decode_name",
    "decode_value",
    "encode_id",
    "encode_value",
    "hookimpl",
    "installed_backends",
    "load_backend",
    "new_id",
    "new_nonce",
    "open_atomic",
    "open_journal",
    "open_state",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, sorted."""
    return list(__all__)
