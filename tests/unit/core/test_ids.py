"""Nonces: each is fresh, out of the buffer too, over threads and forks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from statebook.ids import new_local_nonce, new_nonce

FORKER = """
import os
from statebook.ids import new_local_nonce
new_local_nonce()
child = os.fork()
os.write(1, (" ".join([new_local_nonce() for _ in range(100)]) + "\\n").encode())  # at once, so that lines stay whole
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("make", [new_nonce, new_local_nonce])
def test_nonces_are_128_bits_in_hex_and_never_the_same_in_any_thread(make: Callable[[], str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [nonce for part in pool.map(lambda _: [make() for _ in range(500)], range(16)) for nonce in part]
    assert len(set(made)) == len(made) == 8_000
    assert all(re.fullmatch(r"[0-9a-f]{32}", nonce) for nonce in made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_makes_other_nonces_than_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORKER], capture_output=True, text=True, timeout=60, check=True)
    parent, child = (set(line.split()) for line in done.stdout.splitlines())
    assert len(parent) == len(child) == 100
    assert not parent & child
