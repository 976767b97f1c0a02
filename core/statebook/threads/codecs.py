"""JournalEventCodecRegistry: which payload model an event type has, and what the event does to the state (J18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar, cast

import msgspec
from pydantic import BaseModel, ValidationError

from statebook.codec import Json, decode_value, encode_value
from statebook.errors import InvalidConfiguration, InvalidValue, JournalCorrupt, UnsupportedFormat
from statebook.keys import check_id
from statebook.model import Event, RecordedEvent
from statebook.threads import events as models
from statebook.threads.checkpoint_payload import Checkpoint, Initialization
from statebook.threads.events import message_of
from statebook.threads.payload import EventPayload

State: TypeAlias = Mapping[str, Json]
"""An agent's state as a JSON object, such as `AgentState.to_mapping()` gives."""

P = TypeVar("P", bound=BaseModel)

StateApplication: TypeAlias = Callable[[State, P, Event | RecordedEvent], State]
"""What an event does to the state: takes the state before it, its payload and itself, and gives the state behind it. A
pure function of state, payload and ids: it changes nothing that it is given, and does not look at the event's seq or
time, which are not known yet where a checkpoint is made in the same batch."""

_Application: TypeAlias = Callable[[State, BaseModel, Event | RecordedEvent], State]

PayloadModel: TypeAlias = type[BaseModel]

STANDARD_PAYLOADS: Final[tuple[type[EventPayload], ...]] = (
    models.RunStart,
    models.RunEnd,
    models.RunOutput,
    models.StepStart,
    models.StepPhase,
    models.StepEnd,
    models.InputReceived,
    models.InputApplied,
    models.ModelDispatch,
    models.ModelChunk,
    models.ModelEnd,
    models.ModelRequestStarted,
    models.ModelRequestUsage,
    models.ModelRequestEnded,
    models.ToolRequested,
    models.ToolDispatch,
    models.ActionEnd,
    models.ToolResult,
    models.InteractionRequested,
    models.InteractionResolved,
    models.StateRestored,
    models.RecoveryApplied,
    Checkpoint,
    Initialization,
)
"""The payload models of all event types that statebook understands by itself."""


class EventCodec(msgspec.Struct, frozen=True):
    """What is registered for an event type.

    Attributes:
        type: The event type.
        model: Its payload model.
        required: Whether events of this type are written as required.
        apply: What it does to the state, or None.
    """

    type: str
    model: PayloadModel
    required: bool
    apply: _Application | None


def append_message(state: State, payload: BaseModel, event: Event | RecordedEvent) -> State:  # noqa: ARG001
    """The standard state application: a complete message goes behind those of the state's member `context`.

    Args:
        state: The state before the event.
        payload: The event's payload.
        event: The event.

    Returns:
        The state behind it: the same one where the event completes no message.

    Raises:
        InvalidValue: The state's `context` is no list.
    """
    message = message_of(payload)
    if message is None:
        return state
    context = state.get("context", [])
    if not isinstance(context, list):
        raise InvalidValue("the state's member 'context' is no list; register an application for this state's form")
    return {**state, "context": [*cast("list[Json]", context), cast("Json", message)]}


class JournalEventCodecRegistry:
    """The event types that this process understands. Holds those of statebook; extensions are registered at start.

    Guarantees J18: an event of an unknown type is passed through, unless it is required: then nothing is recovered. A
    payload that does not validate is damage and no default. After the first restore nothing is registered any more, so
    that all restores of a process understand the same.
    """

    def __init__(self, *, apply_messages: StateApplication[BaseModel] | None = append_message) -> None:
        """Make a registry of the standard types.

        Args:
            apply_messages: What `input/applied`, `model/end` and `tool/result` do to the state; None for nothing, as
                where states of another form are applied by extensions.
        """
        self._sealed = False
        self._codecs: dict[str, EventCodec] = {}
        for model in STANDARD_PAYLOADS:
            applies = model in (models.InputApplied, models.ModelEnd, models.ToolResult)
            apply = apply_messages if applies else None
            self._codecs[model.event_type] = EventCodec(model.event_type, model, model.event_required, apply)

    def register(
        self,
        type: str,  # noqa: A002 - the contract's word
        model: type[P],
        *,
        apply: StateApplication[P] | None = None,
        required: bool = False,
    ) -> None:
        """Register an extension event, before anything is executed or restored.

        Args:
            type: The event type; none that is registered.
            model: Its payload model, a pydantic model.
            apply: What it does to the state, or None. Must be a pure function.
            required: Whether a reader that does not know the type must refuse to recover.

        Raises:
            InvalidKey: The type is outside ID-1.
            InvalidConfiguration: The type is registered already, or something was restored by this registry.
        """
        check_id(type, "type")
        if self._sealed:
            raise InvalidConfiguration(
                f"event type {type!r} comes too late: this registry has restored a thread; register it at start",
                option=type,
            )
        if type in self._codecs:
            raise InvalidConfiguration(f"event type {type!r} is registered already", option=type)
        self._codecs[type] = EventCodec(type, model, required, cast("_Application | None", apply))

    def seal(self) -> None:
        """Take no further registrations. Recovery does it by itself."""
        self._sealed = True

    def codec(self, type: str) -> EventCodec | None:  # noqa: A002 - the contract's word
        """What is registered for a type, or None."""
        return self._codecs.get(type)

    def event(
        self,
        type: str,  # noqa: A002 - the contract's word
        payload: Mapping[str, Json],
        *,
        event_id: str,
        occurred_at: int,
        run_id: str | None = None,
        turn_id: str | None = None,
    ) -> Event:
        """Build an event of a registered type from plain values, validated by its model. No I/O.

        Args:
            type: The event type.
            payload: Plain values.
            event_id: The receiver's key for deduplication.
            occurred_at: Unix time in milliseconds.
            run_id: The execution run, or None.
            turn_id: The turn, or None.

        Returns:
            The event; `required` as registered.

        Raises:
            InvalidConfiguration: The type is not registered.
            InvalidKey: An id is outside ID-1.
            InvalidValue: The payload does not validate, or holds what JSON cannot hold.
        """
        codec = self._codecs.get(type)
        if codec is None:
            raise InvalidConfiguration(f"event type {type!r} is not registered", option=type)
        data = encode_value(dict(payload))
        try:
            _validate(codec.model, decode_value(data))
        except ValidationError as error:
            raise InvalidValue(f"the payload of {type!r} is not valid: {_first(error)}") from None
        return Event(
            event_id=event_id,
            type=type,
            occurred_at=occurred_at,
            payload=data,
            run_id=run_id,
            turn_id=turn_id,
            required=codec.required,
        )

    def decode(self, event: Event | RecordedEvent) -> BaseModel | None:
        """Read an event's payload, for reading: an unknown type is passed through, whether required or not.

        Args:
            event: The event.

        Returns:
            The payload, or None where the type is not registered.

        Raises:
            JournalCorrupt: The payload does not validate.
        """
        codec = self._codecs.get(event.type)
        if codec is None:
            return None
        try:
            return _validate(codec.model, decode_value(event.payload))
        except (ValidationError, InvalidValue) as error:
            detail = _first(error) if isinstance(error, ValidationError) else error.message
            raise JournalCorrupt(
                f"the payload of {_place(event)} is not valid: {detail}",
                what="checkpoint" if issubclass(codec.model, Checkpoint) else "event",
                expected=codec.model.__name__,
            ) from None

    def require(self, event: Event | RecordedEvent) -> BaseModel | None:
        """Read an event's payload, for recovery: an unknown type that is required blocks it.

        Args:
            event: The event.

        Returns:
            The payload, or None where the type is neither registered nor required.

        Raises:
            UnsupportedFormat: The type is required and not registered; nothing was changed.
            JournalCorrupt: The payload does not validate.
        """
        if event.required and event.type not in self._codecs:
            raise UnsupportedFormat(
                f"{_place(event)} is required and its type is not registered; register {event.type!r} with the "
                "extension that wrote it before restoring. Nothing was changed",
                what="event",
                expected="a registered type",
                found=event.type,
            )
        return self.decode(event)

    def apply(self, state: State, event: Event | RecordedEvent, payload: BaseModel | None) -> State:
        """What an event does to the state.

        Args:
            state: The state before the event; never changed.
            event: The event.
            payload: Its payload, as `decode` or `require` gave it.

        Returns:
            The state behind it.
        """
        codec = self._codecs.get(event.type)
        if codec is None or codec.apply is None or payload is None:
            return state
        return codec.apply(state, payload, event)


def _validate(model: PayloadModel, value: Json) -> BaseModel:
    return model.from_json(value) if issubclass(model, EventPayload) else model.model_validate(value)


def _first(error: ValidationError) -> str:
    """The first finding, without the value at fault: a payload never stands in an error."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the payload"
    return f"{place}: {first['msg']}"


def _place(event: Event | RecordedEvent) -> str:
    seq = f" at seq {event.seq}" if isinstance(event, RecordedEvent) else ""
    return f"event {event.event_id!r} of type {event.type!r}{seq}"
