"""A certification that is told to end takes the server with it that it has started."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

from statebook_conformance.services.server import listens


def test_a_terminated_certification_leaves_no_server_behind() -> None:
    command = [sys.executable, "-c", "from statebook.cli import main; main()", "conformance", "redis", "--level", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        first = next(line for line in process.stdout if "127.0.0.1:" in line)
        found = re.search(r"127\.0\.0\.1:(\d+)", first)
        assert found is not None
        port = int(found[1])
        assert listens(port)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert not listens(port)
