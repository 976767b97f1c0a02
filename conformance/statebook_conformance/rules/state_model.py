"""STATE-3.model: random programs on the state store answer as a model in a dictionary does."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import count
from typing import TYPE_CHECKING, Final

from statebook.keys import StateKey
from statebook.model import ABSENT, ANY, SlotKind
from statebook_conformance.context import Context, RuleFailure, Unavailable
from statebook_conformance.rule import rule
from statebook_conformance.state_model import StateModel

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

_EXAMPLES: Final = 25
_STEPS: Final = 40
_SHRINK_S: Final = 15.0
_SLOTS: Final = (
    StateKey(None, "s", "a"),
    StateKey("None", "s", "a"),
    StateKey("u", "s", "a"),
    StateKey("u", "s", "a/b"),
    StateKey("u", "s2", "a"),
)


class _Differences:
    """The shortest program so far that gets another answer than the model gives."""

    def __init__(self) -> None:
        self.fact = ""
        self.steps: tuple[str, ...] = ()
        self.deadline: float | None = None

    def add(self, fact: str, steps: tuple[str, ...]) -> None:
        if self.deadline is None:
            self.deadline = time.monotonic() + _SHRINK_S
        if not self.fact or len(steps) < len(self.steps):
            self.fact, self.steps = fact, steps

    @property
    def enough(self) -> bool:
        """Whether shrinking has had its time; later programs do nothing."""
        return self.deadline is not None and time.monotonic() > self.deadline


def _machine(ctx: Context, differences: _Differences) -> type[RuleBasedStateMachine]:
    """The machine; each program works in sessions of its own, so that it starts from nothing."""
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, rule as step

    numbers = count()
    slots = st.one_of(st.just(_SLOTS[0]), st.sampled_from(_SLOTS))
    kinds = st.sampled_from(list(SlotKind))
    values = st.sampled_from([b"1", b'"two"', b"", b"\0\xff"])
    choices = st.integers(0, 11)

    class Machine(RuleBasedStateMachine):
        """Random programs of one caller."""

        def __init__(self) -> None:
            super().__init__()
            self._own = f"{next(numbers)}-"
            self._model = StateModel(ctx.state, self._own)

        def _do(self, act: Callable[[], None]) -> None:
            if differences.enough:
                return
            try:
                act()
            except RuleFailure as failure:
                differences.add(str(failure), tuple(self._model.steps))
                raise

        def teardown(self) -> None:
            """Leave little to the next program."""
            self._model.clean()

        def _slot(self, slot: StateKey) -> StateKey:
            return StateKey(slot.user_id, self._own + slot.session_id, slot.key)

        @step(slot=slots, kind=kinds, value=values, choice=choices)
        def save(self, slot: StateKey, kind: SlotKind, value: bytes, choice: int) -> None:
            """Save or replace."""
            own, model = self._slot(slot), self._model
            self._do(lambda: model.put(kind, own, (value,), model.expected(kind, own, choice)))

        @step(slot=slots, items=st.lists(values, max_size=3), choice=choices)
        def replace(self, slot: StateKey, items: list[bytes], choice: int) -> None:
            """Replace a list."""
            own, model = self._slot(slot), self._model
            expected = model.expected(SlotKind.LIST, own, choice)
            self._do(lambda: model.put(SlotKind.LIST, own, tuple(items), expected))

        @step(slot=slots, items=st.lists(values, max_size=2), length=st.integers(0, 3))
        def append(self, slot: StateKey, items: list[bytes], length: int) -> None:
            """Append to a list."""
            self._do(lambda: self._model.append(self._slot(slot), tuple(items), length))

        @step(slot=slots, kind=kinds, choice=choices)
        def delete(self, slot: StateKey, kind: SlotKind, choice: int) -> None:
            """Delete a slot."""
            own, model = self._slot(slot), self._model
            expected = model.expected(kind, own, choice)
            self._do(lambda: model.delete(kind, own, ANY if expected is ABSENT else expected))

        @step(slot=slots)
        def delete_session(self, slot: StateKey) -> None:
            """Delete a session."""
            self._do(lambda: self._model.delete_session(self._slot(slot).session))

        @step(slot=slots)
        def compare(self, slot: StateKey) -> None:
            """Compare everything about a slot."""
            self._do(lambda: self._model.check(self._slot(slot)))

    return Machine


@rule(
    "STATE-3.model",
    level=1,
    hint="see the steps: the last one got another answer than the model gives",
    kills=("shrinking-ignored", "phantom-session", "conflict-but-written"),
    timeout_s=120,
)
def model(ctx: Context) -> None:
    """Random programs of saves, appends, deletes, loads and listings answer as a model in a dictionary does.

    Cases: 2, 5, 8, 18, 40.
    """
    try:
        from hypothesis import HealthCheck, Phase, seed, settings
        from hypothesis.errors import HypothesisException
        from hypothesis.stateful import run_state_machine_as_test
    except ModuleNotFoundError as error:
        raise Unavailable("hypothesis is not installed; run: pip install 'statebook[conformance]'") from error
    differences = _Differences()
    machine = seed(ctx.seed)(_machine(ctx, differences))
    configured = settings(
        max_examples=_EXAMPLES * ctx.effort,
        stateful_step_count=_STEPS,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        report_multiple_bugs=False,
        print_blob=False,
    )
    try:
        with redirect_stdout(io.StringIO()):
            run_state_machine_as_test(machine, settings=configured)
    except (RuleFailure, HypothesisException):
        if not differences.fact:
            raise
    if differences.fact:
        ctx.fail(f"{differences.fact}; the steps: {'; '.join(differences.steps)[-2_000:]}")
    for _ in range(_EXAMPLES):
        ctx.check(not differences.steps, "a program got another answer than the model gives")
