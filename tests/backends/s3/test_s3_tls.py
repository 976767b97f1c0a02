"""The commit path over TLS: the certificate is checked against the authorities that are named, or not at all."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.backends.mysql.test_mysql_tls import Authority
from tests.backends.s3.conftest import Lookalike

from statebook import plugins as statebook
from statebook.errors import InvalidConfiguration
from statebook_backends.s3.http import Address, Connections, NotConnected


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    directory = tmp_path_factory.mktemp("tls")
    return Authority(directory, "ours"), Authority(directory, "theirs")


@pytest.fixture(scope="module")
def secure(authorities: tuple[Authority, Authority]) -> Iterator[Lookalike]:
    """The look-alike behind a certificate of ours for 127.0.0.1."""
    made = Lookalike()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authorities[0].issue("server"))
    made.server.socket = context.wrap_socket(made.server.socket, server_side=True)
    yield made
    made.server.shutdown()
    made.server.server_close()


def _url(secure: Lookalike, options: str) -> str:
    return secure.url(options).replace(quote("http://", safe=""), quote("https://", safe=""))


def test_a_store_with_the_authority_works(secure: Lookalike, authorities: tuple[Authority, Authority]) -> None:
    store = statebook.open_atomic(_url(secure, f"&ca_bundle={quote(str(authorities[0].file), safe='')}"))
    try:
        token = store.commit("d/x", None, b"head", {"0000000000000001-aaaa": b"blob" * 100_000})
        assert isinstance(token, str)
        record = store.read_head("d/x")
        assert record is not None
        assert (record.data, record.token) == (b"head", token)
        assert store.read_blob("d/x", "0000000000000001-aaaa") == b"blob" * 100_000
    finally:
        store.close()


def test_another_authority_is_a_wrong_configuration_and_nothing_is_sent(
    secure: Lookalike, authorities: tuple[Authority, Authority]
) -> None:
    secure.requests.clear()
    with pytest.raises(InvalidConfiguration) as caught:
        statebook.open_atomic(_url(secure, f"&ca_bundle={quote(str(authorities[1].file), safe='')}"))
    assert caught.value.option == "ca_bundle"
    assert secure.requests == []


def test_a_certificate_that_is_not_to_be_checked_is_not(secure: Lookalike) -> None:
    store = statebook.open_atomic(_url(secure, "&verify=false"))
    try:
        assert isinstance(store.commit("d/unchecked", None, b"head"), str)
    finally:
        store.close()


def test_a_certificate_for_another_name_is_not_connected(
    secure: Lookalike, authorities: tuple[Authority, Authority]
) -> None:
    trust = ssl.create_default_context(cafile=str(authorities[0].file))
    connections = Connections(trust=trust, connect_timeout_s=5, read_timeout_s=5, kept_max=1)
    port = int(secure.endpoint.rpartition(":")[2])
    head = b"GET /bucket/none HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    try:
        assert connections.exchange(Address("127.0.0.1", port, secure=True), "GET", head, b"").status == 404
        with pytest.raises(NotConnected) as caught:
            connections.exchange(Address("localhost", port, secure=True), "GET", head, b"")
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
    finally:
        connections.close()
