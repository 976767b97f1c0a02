"""Journal services above the contract: recorder, export, events, history, interactions, checkpoints, recovery.

Each works on any `ThreadJournalStore`. Public names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from statebook.threads.checkpoint_payload import Checkpoint as Checkpoint, Initialization as Initialization
    from statebook.threads.checkpoints import (
        CommittedCheckpoint as CommittedCheckpoint,
        Snapshot as Snapshot,
        ThreadCheckpoints as ThreadCheckpoints,
    )
    from statebook.threads.codecs import (
        EventCodec as EventCodec,
        JournalEventCodecRegistry as JournalEventCodecRegistry,
        StateApplication as StateApplication,
    )
    from statebook.threads.context_export import ContextExport as ContextExport
    from statebook.threads.event_table import EventTableSink as EventTableSink
    from statebook.threads.events import TokenUsage as TokenUsage
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
    from statebook.threads.history import (
        ThreadHistory as ThreadHistory,
        Transcript as Transcript,
        TranscriptMessage as TranscriptMessage,
        TranscriptMessages as TranscriptMessages,
    )
    from statebook.threads.host import AgentExecutionHost as AgentExecutionHost, PauseConfirmed as PauseConfirmed
    from statebook.threads.interactions import (
        ContinuationRequests as ContinuationRequests,
        ThreadInteractions as ThreadInteractions,
    )
    from statebook.threads.mirror import (
        MirrorOutcome as MirrorOutcome,
        MirrorPlace as MirrorPlace,
        StateMirror as StateMirror,
    )
    from statebook.threads.model_requests import (
        ModelAttempt as ModelAttempt,
        ModelCall as ModelCall,
        ModelRecordingFailed as ModelRecordingFailed,
        ModelRequestObserver as ModelRequestObserver,
        UsageTotal as UsageTotal,
        total_usage as total_usage,
    )
    from statebook.threads.payload import EventPayload as EventPayload, build_event as build_event
    from statebook.threads.position import (
        AgentExecutionPosition as AgentExecutionPosition,
        ExecutionStatus as ExecutionStatus,
        PendingInput as PendingInput,
        PendingInteraction as PendingInteraction,
        PendingTool as PendingTool,
        PendingWork as PendingWork,
        Phase as Phase,
        ToolState as ToolState,
    )
    from statebook.threads.projection import (
        CheckpointView as CheckpointView,
        JournalProjection as JournalProjection,
        RunView as RunView,
        StepView as StepView,
    )
    from statebook.threads.recorder import (
        BlockingInvocationRecorder as BlockingInvocationRecorder,
        InvocationRecorder as InvocationRecorder,
    )
    from statebook.threads.recording import EventDraft as EventDraft, RecorderBounds as RecorderBounds
    from statebook.threads.recovery import (
        NextStep as NextStep,
        Reconciled as Reconciled,
        ReconcilePlan as ReconcilePlan,
        RecoveredThread as RecoveredThread,
        ThreadRecovery as ThreadRecovery,
        ToolOutcome as ToolOutcome,
    )
    from statebook.threads.sinks import CallableSink as CallableSink, JsonLinesSink as JsonLinesSink
    from statebook.threads.transcript_export import (
        ThreadTranscriptExport as ThreadTranscriptExport,
        TranscriptReader as TranscriptReader,
        TranscriptSink as TranscriptSink,
    )

_PUBLIC: Final = {
    "Checkpoint": "checkpoint_payload",
    "Initialization": "checkpoint_payload",
    "CommittedCheckpoint": "checkpoints",
    "Snapshot": "checkpoints",
    "ThreadCheckpoints": "checkpoints",
    "EventCodec": "codecs",
    "JournalEventCodecRegistry": "codecs",
    "StateApplication": "codecs",
    "ContextExport": "context_export",
    "EventTableSink": "event_table",
    "TokenUsage": "events",
    "AsyncJournalExportSink": "export",
    "AsyncJournalExporter": "export",
    "JournalExportSink": "export",
    "JournalExporter": "export",
    "SinkInPool": "export",
    "Delivery": "exporting",
    "DrainReport": "exporting",
    "SkippedEvent": "exporting",
    "ThreadHistory": "history",
    "Transcript": "history",
    "TranscriptMessage": "history",
    "TranscriptMessages": "history",
    "AgentExecutionHost": "host",
    "PauseConfirmed": "host",
    "ContinuationRequests": "interactions",
    "ThreadInteractions": "interactions",
    "MirrorOutcome": "mirror",
    "MirrorPlace": "mirror",
    "StateMirror": "mirror",
    "ModelAttempt": "model_requests",
    "ModelCall": "model_requests",
    "ModelRecordingFailed": "model_requests",
    "ModelRequestObserver": "model_requests",
    "UsageTotal": "model_requests",
    "total_usage": "model_requests",
    "EventPayload": "payload",
    "build_event": "payload",
    "AgentExecutionPosition": "position",
    "ExecutionStatus": "position",
    "PendingInput": "position",
    "PendingInteraction": "position",
    "PendingTool": "position",
    "PendingWork": "position",
    "Phase": "position",
    "ToolState": "position",
    "CheckpointView": "projection",
    "JournalProjection": "projection",
    "RunView": "projection",
    "StepView": "projection",
    "BlockingInvocationRecorder": "recorder",
    "InvocationRecorder": "recorder",
    "EventDraft": "recording",
    "RecorderBounds": "recording",
    "NextStep": "recovery",
    "ReconcilePlan": "recovery",
    "Reconciled": "recovery",
    "RecoveredThread": "recovery",
    "ThreadRecovery": "recovery",
    "ToolOutcome": "recovery",
    "CallableSink": "sinks",
    "JsonLinesSink": "sinks",
    "ThreadTranscriptExport": "transcript_export",
    "TranscriptReader": "transcript_export",
    "TranscriptSink": "transcript_export",
}

__all__ = [
    "AgentExecutionHost",
    "AgentExecutionPosition",
    "AsyncJournalExportSink",
    "AsyncJournalExporter",
    "BlockingInvocationRecorder",
    "CallableSink",
    "Checkpoint",
    "CheckpointView",
    "CommittedCheckpoint",
    "ContextExport",
    "ContinuationRequests",
    "Delivery",
    "DrainReport",
    "EventCodec",
    "EventDraft",
    "EventPayload",
    "EventTableSink",
    "ExecutionStatus",
    "Initialization",
    "InvocationRecorder",
    "JournalEventCodecRegistry",
    "JournalExportSink",
    "JournalExporter",
    "JournalProjection",
    "JsonLinesSink",
    "MirrorOutcome",
    "MirrorPlace",
    "ModelAttempt",
    "ModelCall",
    "ModelRecordingFailed",
    "ModelRequestObserver",
    "NextStep",
    "PauseConfirmed",
    "PendingInput",
    "PendingInteraction",
    "PendingTool",
    "PendingWork",
    "Phase",
    "ReconcilePlan",
    "Reconciled",
    "RecorderBounds",
    "RecoveredThread",
    "RunView",
    "SinkInPool",
    "SkippedEvent",
    "Snapshot",
    "StateApplication",
    "StateMirror",
    "StepView",
    "ThreadCheckpoints",
    "ThreadHistory",
    "ThreadInteractions",
    "ThreadRecovery",
    "ThreadTranscriptExport",
    "TokenUsage",
    "ToolOutcome",
    "ToolState",
    "Transcript",
    "TranscriptMessage",
    "TranscriptMessages",
    "TranscriptReader",
    "TranscriptSink",
    "UsageTotal",
    "build_event",
    "total_usage",
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
