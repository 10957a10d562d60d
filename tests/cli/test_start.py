"""SIGTERM and SIGINT while the command line is still being imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.tables import each_row
from tests.waiting import PATIENCE

# the module that takes long to import is one that is ended meanwhile
PROGRAM = """\
import os, signal, sys
class Importing:
    def find_spec(self, name, path, target=None):
        if name == "ragmeter.cli.main":
            os.kill(os.getpid(), int(os.environ["NUMBER"]))
            sys.exit(5)
from ragmeter.cli import start
sys.meta_path.insert(0, Importing())
start()
"""


@each_row(
    ("number", "arguments", "status"),
    [
        (signal.SIGTERM, "worker", 0),
        (signal.SIGTERM, "run --replay traces.jsonl", 0),
        (signal.SIGTERM, "-v --log-format json worker -c ragmeter.yaml", 0),
        (signal.SIGTERM, "score run", -signal.SIGTERM),
        (signal.SIGTERM, "kafka init", -signal.SIGTERM),
        (signal.SIGTERM, "", -signal.SIGTERM),
        (signal.SIGINT, "run", 0),
        (signal.SIGINT, "worker", 0),
        (signal.SIGINT, "score traces.jsonl", 130),
    ],
)
def test_a_signal_during_the_imports_ends_a_service_with_0_and_shows_no_traceback(
    number: int, arguments: str, status: int
) -> None:
    command = [sys.executable, "-c", PROGRAM, *arguments.split()]
    env = {**os.environ, "NUMBER": str(int(number))}
    done = subprocess.run(command, env=env, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (status, b"")


def test_the_package_is_the_command_too() -> None:
    command = [sys.executable, "-m", "ragmeter", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "ragmeter", "")
