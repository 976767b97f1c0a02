"""Opens storages: over S3 by options, and over any fsspec file system that has a conditional writer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final
from urllib.parse import urlsplit

from statebook.capabilities import Capabilities, Durability, Feature, Sharing
from statebook.ids import new_nonce
from statebook_backends.s3.atomic import EngineSource, ObjectAtomicJournalStorage
from statebook_backends.s3.connections import Engines, Once
from statebook_backends.s3.errors import opening
from statebook_backends.s3.names import BACKEND, Layout
from statebook_backends.s3.options import S3Options
from statebook_backends.s3.probe import ProbeReport, probe
from statebook_backends.s3.store import connect, filesystem_of
from statebook_backends.s3.writers import ConditionalWriters, ObjectEngine

SHARED: Final = Engines()
"""The engines of this process."""

PROBED: Final[Once[ProbeReport]] = Once()
"""What this process knows of endpoints and buckets."""

_AT_ONCE_MAX: Final = 32
_SETTING: Final = "object store acknowledgement"


class SharedEngine(EngineSource):
    """The engine of a set of options, shared by all stores of this process that are opened with them."""

    def __init__(self, options: S3Options, engines: Engines = SHARED) -> None:
        """Name an engine; makes nothing yet.

        Args:
            options: The options.
            engines: The engines of this process.
        """
        self._options = options
        self._engines = engines
        self._name = _connection(options)

    def enter(self) -> ObjectEngine:
        return self._engines.enter(self._name, lambda: connect(self._options))

    def leave(self) -> None:
        self._engines.leave(self._name)


class OwnEngine(EngineSource):
    """An engine of one storage alone."""

    def __init__(self, protocol: str, storage_options: Mapping[str, object], writers: ConditionalWriters) -> None:
        """Name a file system.

        Args:
            protocol: Its fsspec protocol.
            storage_options: Its fsspec options.
            writers: Where its conditional writer is found.

        Raises:
            InvalidConfiguration: There is none.
        """
        self._protocol = protocol
        self._storage_options = dict(storage_options)
        self._factory = writers.find(protocol)
        self._engine: ObjectEngine | None = None

    def enter(self) -> ObjectEngine:
        self._engine = self._factory(filesystem_of(self._protocol, self._storage_options))
        return self._engine

    def leave(self) -> None:
        if self._engine is not None:
            self._engine.close()


def open_s3(options: S3Options) -> ObjectAtomicJournalStorage:
    """Open the storage of a bucket, prefix and namespace.

    Guarantees ATOM-7: the endpoint's conditional writes were raced by this process, or nothing is opened.

    Args:
        options: The options.

    Returns:
        The storage.

    Raises:
        InvalidConfiguration: It cannot be opened as asked, or the endpoint is not fit for it.
        BackendUnavailable: The endpoint does not answer.
    """
    layout = options.settled().layout()
    engines = SharedEngine(options)
    with opening(options.place):
        engine = engines.enter()
        try:
            report = PROBED.get(
                (options.bucket, options.prefix, _connection(options)),
                lambda: probe(engine, layout.probes, options.place, new_nonce),
            )
            facts = {"linger_ms": str(options.linger_ms)} if options.linger_ms else {}
            facts["endpoint"] = urlsplit(options.endpoint_url).netloc if options.endpoint_url else "AWS"
            declared = _capabilities(report, Durability(options.durability), Sharing.NETWORK, facts)
            return ObjectAtomicJournalStorage(
                engines, layout, declared, ordered=report.ordered, at_once=min(_AT_ONCE_MAX, options.connections_max)
            )
        finally:
            engines.leave()


def open_object_storage(
    protocol: str,
    root: str,
    *,
    namespace: str = "default",
    storage_options: Mapping[str, object] | None = None,
    writers: ConditionalWriters | None = None,
    durability: Durability = Durability.NONE,
    sharing: Sharing = Sharing.PROCESS,
) -> ObjectAtomicJournalStorage:
    """Open a storage over any fsspec file system that has a conditional writer: for plugins of other stores.

    Guarantees ATOM-7: without a conditional writer nothing is opened, and the writer is raced first.

    Args:
        protocol: The fsspec protocol.
        root: The directory, as the file system itself writes it, such as `container/prefix`.
        namespace: As for every backend.
        storage_options: The file system's own options.
        writers: Where conditional writers are found; None: those that are installed.
        durability: What the caller knows of the store.
        sharing: What the caller knows of the store.

    Returns:
        The storage.

    Raises:
        InvalidConfiguration: There is no writer for the protocol; names those that are registered. Or the store is not
            fit for it.
        BackendUnavailable: The store does not answer.
    """
    engines = OwnEngine(protocol, storage_options or {}, writers or ConditionalWriters.installed())
    layout = Layout.below(root, namespace)
    with opening(f"{protocol}://{root}"):
        try:
            report = probe(engines.enter(), layout.probes, f"{protocol}://{root}", new_nonce)
        finally:
            engines.leave()
        declared = _capabilities(report, durability, sharing, {"filesystem": protocol})
        return ObjectAtomicJournalStorage(engines, layout, declared, ordered=report.ordered)


def _capabilities(
    report: ProbeReport, durability: Durability, sharing: Sharing, facts: Mapping[str, str]
) -> Capabilities:
    known = {**facts, "listing": "byte order" if report.ordered else "sorted here", "server": report.server}
    return Capabilities(
        backend=BACKEND,
        durability=durability,
        durability_setting=_SETTING,
        sharing=sharing,
        features=frozenset({Feature.PURGE}) if report.removes else frozenset(),
        server=tuple(sorted((name, value) for name, value in known.items() if value)),
    )


def _connection(options: S3Options) -> Hashable:
    """What a connection is made from: all options but those that name a place in the bucket or only declare."""
    secrets = [secret and secret.get_secret_value() for secret in (options.secret_access_key, options.session_token)]
    return (
        *(options.endpoint_url, options.region, options.access_key_id, *secrets, options.profile, options.path_style),
        *(options.connect_timeout_s, options.read_timeout_s, options.connections_max),
        *(options.verify, options.ca_bundle),
    )
