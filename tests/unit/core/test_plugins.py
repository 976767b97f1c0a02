"""Backends found by name, opened by URL; every way to get it wrong says what is wrong."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace

import pytest

from statebook import (
    BackendOptions,
    Durability,
    Feature,
    InvalidConfiguration,
    MissingDriver,
    Sharing,
    StoreClosed,
    ThreadKey,
    UnknownBackend,
    UnsupportedCapability,
    hookimpl,
    installed_backends,
    load_backend,
    open_atomic,
    open_journal,
    open_state,
    plugins,
)
from statebook.options import StoreUrl
from statebook.plugins import Backend, driver

KEY = ThreadKey("u", "a", "s", "t")


class Options(BackendOptions):
    scheme = "acme"


class Acme:
    """A plugin that only has options."""

    @hookimpl
    def statebook_options(self, url: StoreUrl) -> BackendOptions:
        return Options.checked(dict(url.query))


def test_the_embedded_backends_are_installed() -> None:
    names = installed_backends()
    assert {"memory", "file", "sqlite"} <= set(names)
    assert list(names) == sorted(set(names))


@pytest.mark.parametrize(("scheme", "guess"), [("memry", "memory"), ("sqlit", "sqlite")])
def test_an_unknown_scheme_is_answered_with_those_there_are_and_a_guess(scheme: str, guess: str) -> None:
    with pytest.raises(UnknownBackend) as caught:
        load_backend(f"{scheme}://x")
    assert caught.value.installed == installed_backends()
    assert caught.value.backend == scheme
    assert f"Did you mean {guess!r}?" in str(caught.value)
    for name in installed_backends():
        assert name in str(caught.value)


def test_a_scheme_like_no_other_gets_no_guess_and_no_secret_is_shown() -> None:
    with pytest.raises(UnknownBackend) as caught:
        open_journal("zzzz://user:hunter2@h?password=hunter2")
    assert "Did you mean" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_option_that_a_backend_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_backend("memory://?namespcae=x")
    assert caught.value.option == "namespcae"
    assert "namespace" in str(caught.value)


def test_what_is_required_is_checked_and_a_store_that_has_it_opens() -> None:
    with open_closing(require=(Sharing.PROCESS,)):
        pass
    for opener in (open_journal, open_state, open_atomic):
        with pytest.raises(UnsupportedCapability) as caught:
            opener("memory://", require=(Durability.REPLICATED, Sharing.NETWORK))
        assert caught.value.capability == "durability=replicated, sharing=network"
        assert caught.value.backend == "memory"


class open_closing:  # noqa: N801 - reads as a function
    def __init__(self, require: tuple[Durability | Sharing | Feature, ...]) -> None:
        self.store = open_journal("memory://", require=require)

    def __enter__(self) -> None:
        assert self.store.head(KEY) is None

    def __exit__(self, *exc: object) -> None:
        self.store.close()


def test_a_store_that_is_refused_is_closed() -> None:
    opened = []

    class Recording:
        @hookimpl
        def statebook_options(self, url: StoreUrl) -> BackendOptions:
            return Options()

        @hookimpl
        def statebook_open_journal(self, options: BackendOptions) -> object:
            opened.append(open_journal("memory://"))
            return opened[-1]

    backend = Backend("acme", Recording(), Options())
    with pytest.raises(UnsupportedCapability):
        backend.open_journal((Durability.REPLICATED,))
    with pytest.raises(StoreClosed):
        opened[0].head(KEY)


def test_ready_options_open_what_their_url_opens() -> None:
    backend = load_backend("memory://?namespace=n")
    assert backend.options.namespace == "n"
    again = load_backend(backend.options)
    assert again.scheme == "memory"
    assert again.options == backend.options


def test_a_namespace_is_an_id_and_a_wrong_one_is_a_wrong_option() -> None:
    assert load_backend("memory://?namespace=a%2F..%25").options.namespace == "a/..%"
    for wrong in ("a%00b", "", "x" * 129):
        with pytest.raises(InvalidConfiguration) as caught:
            load_backend(f"memory://?namespace={wrong}")
        assert caught.value.option == "namespace"


def test_a_hook_with_wrong_parameters_names_the_backend() -> None:
    class Wrong(Acme):
        @hookimpl
        def statebook_open_journal(self, options: BackendOptions, extra: int) -> None:
            return None

    with pytest.raises(InvalidConfiguration, match="'acme' has wrong hooks"):
        Backend("acme", Wrong(), Options())


def test_a_hook_that_does_not_exist_names_the_backend_and_the_hook() -> None:
    class Unknown(Acme):
        @hookimpl
        def statebook_open_jurnal(self, options: BackendOptions) -> None:
            return None

    with pytest.raises(InvalidConfiguration, match="statebook_open_jurnal"):
        Backend("acme", Unknown(), Options())


@pytest.mark.parametrize("plugin", [SimpleNamespace(), object()])
def test_a_plugin_without_options_is_refused(plugin: object) -> None:
    with pytest.raises(InvalidConfiguration, match="statebook_options"):
        Backend("acme", plugin, StoreUrl.parse("acme://"))


def test_options_of_another_kind_are_refused() -> None:
    class Junk:
        @hookimpl
        def statebook_options(self, url: StoreUrl) -> object:
            return {"namespace": "x"}

    with pytest.raises(InvalidConfiguration, match="returns options"):
        Backend("acme", Junk(), StoreUrl.parse("acme://"))


def test_a_backend_without_atomic_storage_says_so_for_each_kind() -> None:
    backend = Backend("acme", Acme(), StoreUrl.parse("acme://"))
    for opener in (backend.open_atomic, backend.open_journal, backend.open_state):
        with pytest.raises(UnsupportedCapability, match="no atomic storage"):
            opener()
    assert backend.destroy_namespace() is False


def test_a_backend_with_only_atomic_storage_gets_journal_and_state_from_core() -> None:
    class Atomic(Acme):
        @hookimpl
        def statebook_open_atomic(self, options: BackendOptions) -> object:
            return open_atomic("memory://")

    backend = Backend("acme", Atomic(), StoreUrl.parse("acme://"))
    journal, state = backend.open_journal(), backend.open_state()
    assert journal.claim(KEY, "w").epoch == 1
    assert state.list_sessions("u").sessions == ()
    journal.close()
    state.close()


def test_a_missing_client_library_is_answered_with_the_command_that_installs_it() -> None:
    command = 'pip install "statebook[acme]"'
    with pytest.raises(MissingDriver, match="acme_client") as caught, driver(command):
        raise ModuleNotFoundError("No module named 'acme_client'", name="acme_client")
    assert caught.value.install == command
    assert command in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize("name", ["statebook.nothing", "statebook_backends.acme.store"])
def test_a_module_of_ours_that_is_missing_is_no_missing_driver(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught, driver("pip install x"):
        raise ModuleNotFoundError("broken", name=name)
    assert not isinstance(caught.value, MissingDriver)


def points(*entries: tuple[str, str]) -> EntryPoints:
    return EntryPoints(EntryPoint(name, value, "statebook.backends") for name, value in entries)


def test_two_packages_with_one_scheme_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = points(("acme", "one.plugin"), ("acme", "two.plugin"))
    monkeypatch.setattr(plugins, "entry_points", found.select)
    with pytest.raises(InvalidConfiguration, match=r"one\.plugin, two\.plugin"):
        load_backend("acme://")


def test_one_package_that_is_seen_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = points(*[("memory", "statebook_backends.memory.plugin")] * 2)
    monkeypatch.setattr(plugins, "entry_points", found.select)
    assert installed_backends() == ("memory",)
    assert load_backend("memory://").scheme == "memory"


def test_what_was_found_is_not_looked_up_again_and_what_was_not_found_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    found: list[EntryPoint] = []

    def entry_points(*, group: str, name: str | None = None) -> EntryPoints:
        asked.append(name or "all")
        return EntryPoints(found).select(group=group)

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.setattr(plugins, "_FOUND", {})
    for _ in range(2):
        with pytest.raises(UnknownBackend):
            load_backend("acme-late://")
    found.append(EntryPoint("acme-late", "statebook_backends.memory.plugin", "statebook.backends"))
    asked.clear()
    for _ in range(3):
        assert load_backend("acme-late://").scheme == "acme-late"
    assert asked == ["acme-late"]


def test_a_strangers_package_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_plugin.py").write_text(
        "from statebook import BackendOptions, hookimpl\n"
        "class Options(BackendOptions):\n    scheme = 'acme'\n"
        "@hookimpl\ndef statebook_options(url):\n    return Options.checked(dict(url.query))\n"
    )
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[statebook.backends]\nacme = acme_plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "acme" in installed_backends()
    assert load_backend("acme://?namespace=x").options.namespace == "x"
