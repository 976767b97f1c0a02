"""The hooks of `s3://`. The journal and the state store are core's, over the atomic storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statebook.errors import InvalidConfiguration
from statebook.hookspecs import hookimpl
from statebook.options import BackendOptions, StoreUrl
from statebook.plugins import driver
from statebook_backends.s3.options import S3Options

if TYPE_CHECKING:
    from statebook.atomic import AtomicJournalStorage
    from statebook.format_fixtures import FormatFixtures
    from statebook.medium import Medium

_INSTALL = 'python -m pip install "statebook[s3]"'


@hookimpl
def statebook_options(url: StoreUrl) -> BackendOptions:
    """Turn a URL into options."""
    return S3Options.from_url(url)


@hookimpl
def statebook_open_atomic(options: BackendOptions) -> AtomicJournalStorage:
    """Open the atomic storage of a bucket, prefix and namespace; the endpoint is probed first."""
    with driver(_INSTALL):
        from statebook_backends.s3.opening import open_s3

    return open_s3(_own(options))


@hookimpl
def statebook_destroy_namespace(options: BackendOptions) -> bool:
    """Delete all objects of a namespace. The bucket stays, and so do other namespaces."""
    with driver(_INSTALL):
        from statebook_backends.s3.medium import destroy_namespace

    destroy_namespace(_own(options))
    return True


@hookimpl
def statebook_open_medium(options: BackendOptions) -> Medium:
    """Show the objects of a namespace."""
    with driver(_INSTALL):
        from statebook_backends.s3.medium import S3Medium

    return S3Medium(_own(options))


@hookimpl
def statebook_open_fixtures(options: BackendOptions) -> FormatFixtures:
    """Show what earlier releases stored."""
    with driver(_INSTALL):
        from statebook_backends.s3.medium import S3Medium
    from statebook.format_fixtures import MediumFixtures

    return MediumFixtures("statebook_backends.s3", S3Medium(_own(options)))


def _own(options: BackendOptions) -> S3Options:
    if not isinstance(options, S3Options):
        raise InvalidConfiguration(
            f"s3:// takes S3Options, not {type(options).__name__}", option="options", backend="s3"
        )
    return options
