"""The tree of errors: complete, picklable, with advice (ERR-1)."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import statebook
from statebook import errors
from statebook.errors import Retry, StatebookError
from statebook.model import ClaimInfo, Receipt


def tree(root: type[StatebookError] = StatebookError) -> list[type[StatebookError]]:
    found = [root]
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            found.extend(tree(child))
    return list(dict.fromkeys(found))


ALL = tree()
SAMPLES: dict[str, object] = {
    "option": "url",
    "installed": ("memory", "sqlite"),
    "install": "pip install x",
    "capability": "sharing=network",
    "limit": "value_bytes_max",
    "maximum": 1,
    "actual": 2,
    "current_version": 3,
    "current_length": 4,
    "last_seq": 5,
    "base_seq": 6,
    "holder": ClaimInfo("j", "w", 1, "n"),
    "current_epoch": 7,
    "committed": Receipt("b", "j", 1, 2, 1, "d", True),
    "batch_id": "b",
    "event_id": "e",
    "first_seq": 8,
    "what": "head",
    "expected": "x",
    "found": "y",
    "seen_seq": 9,
    "version": 10,
    "key": "u/a/s/t",
    "backend": "memory",
}
RETRY = {
    Retry.AFTER_REREAD: {"Conflict", "VersionConflict", "HeadConflict", "CursorConflict"},
    Retry.BACKOFF: {"WriterBusy", "BackendUnavailable", "Overloaded"},
    Retry.SETTLE: {"OutcomeUnknown"},
}


def fields_of(cls: type[StatebookError]) -> dict[str, object]:
    parameters = inspect.signature(cls).parameters.values()
    return {p.name: SAMPLES[p.name] for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_tree_is_the_whole_module_and_public() -> None:
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value) and value in ALL}
    assert {cls.__name__ for cls in ALL} == defined
    assert defined <= set(statebook.__all__)
    assert len(ALL) >= 30


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_survives_pickle_and_copy_with_all_its_fields(cls: type[StatebookError]) -> None:
    fields = fields_of(cls)
    error = cls("it failed", **fields)  # type: ignore[arg-type]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        for back in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
            assert type(back) is cls
            assert back.args == ("it failed",)
            assert str(back) == str(error)
            assert {name: getattr(back, name) for name in fields} == fields


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_needs_no_detail_and_takes_only_keywords_beside_the_message(cls: type[StatebookError]) -> None:
    bare = cls()
    assert bare.message == ""
    assert all(not getattr(bare, name) for name in fields_of(cls))
    assert pickle.loads(pickle.dumps(bare)).message == ""
    with pytest.raises(TypeError):
        cls("message", "detail")  # type: ignore[call-arg]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_each_class_says_what_a_caller_may_do(cls: type[StatebookError]) -> None:
    expected = next((retry for retry, names in RETRY.items() if cls.__name__ in names), Retry.NEVER)
    assert cls.retry is expected


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_each_class_is_described(cls: type[StatebookError]) -> None:
    doc = inspect.getdoc(cls)
    assert doc
    own = set(fields_of(cls)) - {"key", "backend", "option", "what", "expected", "found"}
    inherited = {name for base in cls.__mro__[1:] for name in (inspect.getdoc(base) or "").split()}
    for name in own:
        assert f"{name}:" in doc or f"{name}:" in inherited, name


def test_wrong_input_is_a_value_error_too() -> None:
    names = {cls.__name__ for cls in ALL if issubclass(cls, ValueError)}
    assert names == {"InvalidInput", "InvalidKey", "InvalidValue", "InvalidBatch", "LimitExceeded"}


def test_the_text_says_what_it_is_about() -> None:
    assert str(errors.HeadConflict("moved", key="u/a/s/t", backend="s3")) == "moved [key=u/a/s/t backend=s3]"
    assert str(errors.HeadConflict("moved")) == "moved"
