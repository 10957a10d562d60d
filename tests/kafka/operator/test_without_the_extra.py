"""Commands for Kafka where the extra is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE

# Python finds none of the extra's packages, as after a plain `pip install .`
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kafka", "aiokafka", "faust", "uvloop"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

from ragmeter.cli.main import app
from typer.testing import CliRunner

for line in sys.argv[1:]:
    result = CliRunner().invoke(app, line.split())
    print(result.exit_code, repr(result.exception), " ".join(result.output.split()))
"""
EXAMPLE = Path(__file__).parents[3] / "examples" / "mtrag.jsonl"
COMMANDS = (
    "worker",
    "kafka init",
    "kafka lag",
    "kafka rebuild",
    "kafka dlq list",
    "kafka dlq redrive",
    "kafka dlq show 1",
    f"replay {EXAMPLE} --to kafka",
)


def test_each_command_names_the_extra_and_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *COMMANDS],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    lines = done.stdout.splitlines()
    cure = "ragmeter: this needs the extra: pip install '.[kafka]' in a clone of ragmeter"
    assert lines == [f"2 SystemExit(2) {cure}"] * len(COMMANDS)
