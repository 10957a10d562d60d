"""Ports of this machine for what tests start, no two of them the same."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["free_port"]

# Below the range from which Linux takes the ports of outgoing connections (32768 and up): between
# our look and the server's bind, and while a server is stopped to be started again, any client
# beside us could else be given the port, and even connect to itself.
PORTS = range(12_000, 32_000)

_chance = random.Random(os.urandom(8))
_leased: set[int] = set()


@cache
def _leases() -> int:
    """A file of which each test process locks one byte a port, for as long as it lives: test runs
    side by side look at ports that no server has bound yet.
    """
    path = Path(tempfile.gettempdir()) / f"ragmeter-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def free_port() -> int:
    """A port on which nobody listens, that no outgoing connection will take, and that no other
    test will be given while this process lives.
    """
    while True:
        port = _chance.choice(PORTS)
        if port in _leased or not _lease(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def _lease(port: int) -> bool:
    try:
        fcntl.lockf(_leases(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _leased.add(port)
    return True
