"""TLS: verified against a given authority, or refused; never silently without (ERR-6)."""

import datetime as dt
import ipaddress
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from statebook.errors import BackendUnavailable, InvalidConfiguration
from statebook.keys import StateKey
from statebook_conformance.services.mysql_service import MysqlService

SLOT = StateKey("u", "s", "k")


class Authority:
    """Signs certificates, and writes them where a server of another user can read them."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._build(self._name, self._key.public_key(), authority=True)
        self.file = self._write(f"{name}-ca.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def _build(self, subject: x509.Name, public: Any, *, authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._build(subject, key.public_key(), authority=False)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return (
            self._write(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}-key.pem", text),
        )

    def _write(self, name: str, data: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(data)
        path.chmod(0o644)
        return path


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    directory = tmp_path_factory.mktemp("tls")
    made_by_pytest = [parent for parent in directory.parents if parent.name.startswith(("pytest-", "popen-"))]
    for each in (directory, *made_by_pytest):
        each.chmod(0o755)
    return Authority(directory, "ours"), Authority(directory, "strangers")


@pytest.fixture(scope="module")
def tls_server(authorities: tuple[Authority, Authority], start_server: Any) -> Iterator[MysqlService]:
    certificate, key = authorities[0].issue("server")
    settings = (f"--ssl-ca={authorities[0].file}", f"--ssl-cert={certificate}", f"--ssl-key={key}")
    with ExitStack() as stack:
        yield start_server(stack, settings)


def test_a_server_is_verified_against_the_given_authority_and_all_sessions_are_encrypted(
    tls_server: MysqlService, stores_at: Any, authorities: tuple[Authority, Authority], kill: Any
) -> None:
    state = stores_at(tls_server.url).state(ssl_ca=authorities[0].file)
    assert state.save(SLOT, b"1") == 1
    # What TLS itself has left in the socket is no end of the session.
    link = state._database.process.pool.idle[0]
    for version in range(2, 5):
        assert state.save(SLOT, b"1") == version
    assert state._database.process.pool.idle == (link,)
    kill(tls_server)
    assert state.save(SLOT, b"1") == 5
    tls_server.execute(f"ALTER USER '{tls_server.user}'@'%' REQUIRE SSL")
    try:
        assert stores_at(tls_server.url).state(ssl=True, ssl_verify=False).exists(SLOT.session) is False
        with pytest.raises((InvalidConfiguration, BackendUnavailable)):
            stores_at(tls_server.url).state()
    finally:
        tls_server.execute(f"ALTER USER '{tls_server.user}'@'%' REQUIRE NONE")


def test_a_server_of_a_strange_authority_is_refused(
    tls_server: MysqlService, stores_at: Any, authorities: tuple[Authority, Authority]
) -> None:
    with pytest.raises(InvalidConfiguration, match="check ssl_ca") as caught:
        stores_at(tls_server.url).state(ssl_ca=authorities[1].file)
    assert caught.value.option == "ssl"


def test_a_certificate_of_the_client_is_shown_where_the_server_asks_for_it(
    tls_server: MysqlService, stores_at: Any, authorities: tuple[Authority, Authority]
) -> None:
    certificate, key = authorities[0].issue("client")
    tls_server.execute(f"ALTER USER '{tls_server.user}'@'%' REQUIRE X509")
    try:
        options = {"ssl_ca": authorities[0].file, "ssl_cert": certificate, "ssl_key": key}
        assert stores_at(tls_server.url).state(**options).save(SLOT, b"1") == 1
        with pytest.raises(InvalidConfiguration):
            stores_at(tls_server.url).state(ssl_ca=authorities[0].file)
    finally:
        tls_server.execute(f"ALTER USER '{tls_server.user}'@'%' REQUIRE NONE")
