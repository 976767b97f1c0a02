"""Journal services above the contract: recorder, export, events, history, interactions, checkpoints, recovery.

Each works on any `ThreadJournalStore`. Public names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from statebook.threads.context_export import (
        ContextExport as ContextExport,
    )
    from statebook.threads.event_table import (
        EventTableSink as EventTableSink,
    )
    from statebook.threads.export import (
        AsyncJournalExporter as AsyncJournalExporter,
        AsyncJournalExportSink as AsyncJournalExportSink,
        JournalExporter as JournalExporter,
        JournalExportSink as JournalExportSink,
        SinkInPool as SinkInPool,
    )
    from statebook.threads.exporting import (
        Delivery as Delivery,
        DrainReport as DrainReport,
        SkippedEvent as SkippedEvent,
    )
    from statebook.threads.recorder import (
        BlockingInvocationRecorder as BlockingInvocationRecorder,
        InvocationRecorder as InvocationRecorder,
    )
    from statebook.threads.recording import (
        EventDraft as EventDraft,
        RecorderBounds as RecorderBounds,
    )
    from statebook.threads.sinks import (
        CallableSink as CallableSink,
        JsonLinesSink as JsonLinesSink,
    )
    from statebook.threads.transcript_export import (
        ThreadTranscriptExport as ThreadTranscriptExport,
        TranscriptReader as TranscriptReader,
        TranscriptSink as TranscriptSink,
    )

_PUBLIC: Final = {
    "ContextExport": "context_export",
    "EventTableSink": "event_table",
    "AsyncJournalExportSink": "export",
    "AsyncJournalExporter": "export",
    "JournalExportSink": "export",
    "JournalExporter": "export",
    "SinkInPool": "export",
    "Delivery": "exporting",
    "DrainReport": "exporting",
    "SkippedEvent": "exporting",
    "BlockingInvocationRecorder": "recorder",
    "InvocationRecorder": "recorder",
    "EventDraft": "recording",
    "RecorderBounds": "recording",
    "CallableSink": "sinks",
    "JsonLinesSink": "sinks",
    "ThreadTranscriptExport": "transcript_export",
    "TranscriptReader": "transcript_export",
    "TranscriptSink": "transcript_export",
}

__all__ = [
    "AsyncJournalExportSink",
    "AsyncJournalExporter",
    "BlockingInvocationRecorder",
    "CallableSink",
    "ContextExport",
    "Delivery",
    "DrainReport",
    "EventDraft",
    "EventTableSink",
    "InvocationRecorder",
    "JournalExportSink",
    "JournalExporter",
    "JsonLinesSink",
    "RecorderBounds",
    "SinkInPool",
    "SkippedEvent",
    "ThreadTranscriptExport",
    "TranscriptReader",
    "TranscriptSink",
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
    return sorted(__all__)
