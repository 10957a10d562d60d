"""No port is given twice, not even to a test run beside this one."""

import subprocess
import sys
from pathlib import Path

from tests import ports

GIVE = """
from tests import ports
ports.PORTS = range({start}, {start} + 40)
print(*(ports.free_port() for _ in range(10)), flush=True)
input()
"""


def test_two_processes_are_never_given_the_same() -> None:
    start = ports.free_port() // 100 * 100
    command = [sys.executable, "-c", GIVE.format(start=start)]
    root = Path(__file__).parents[1]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        ) as one,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        ) as other,
    ):
        assert one.stdout is not None
        assert other.stdout is not None
        given = [*one.stdout.readline().split(), *other.stdout.readline().split()]
        assert len(given) == len(set(given)) == 20
        one.communicate("\n")
        other.communicate("\n")


def test_a_process_is_never_given_the_same() -> None:
    given = [ports.free_port() for _ in range(200)]
    assert len(set(given)) == len(given)
    assert all(port in ports.PORTS for port in given)
