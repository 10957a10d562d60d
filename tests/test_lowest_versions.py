"""The lowest versions of dependencies that are declared: what they must do is tried with them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.real import unavailable
from tests.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.real]

UV = Path(sys.executable).with_name("uv")
SECONDS = 280.0
# what runs the tests, in the versions that run this one
TOOLS = (
    "confluent-kafka",
    "hypothesis",
    "pytest",
    "pytest-httpserver",
    "pytest-timeout",
    "pytest-xdist",
)
# all that is quick, of the features that have most dependencies: the clients of Kafka, the formats
# that come in, settings, and the wire formats of pydantic and protobuf
TESTS = ("tests/kafka", "tests/ingest")
LEFT_OUT = ("tests/kafka/state", "tests/kafka/processors", "tests/ingest/requests")


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **environment},
        check=False,
    )
    text = done.stdout + done.stderr
    if done.returncode and "Failed to fetch" in text:
        unavailable(f"the package index does not answer: {text[-500:]}")
    assert done.returncode == 0, text[-5000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_lowest_declared_versions_do(tmp_path: Path) -> None:
    home = tmp_path / "lowest"
    python = home / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, home)
    lowest = ["--resolution", "lowest-direct", "--only-binary", ":all:"]
    tools = [f"{name}=={version(name)}" for name in TOOLS]
    where = ["--quiet", "--python", str(python)]
    run(UV, "pip", "install", *where, *lowest, "-r", "pyproject.toml", "--extra", "kafka", *tools)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = [*project["dependencies"], *project["optional-dependencies"]["kafka"]]
    (least,) = (one.partition(">=")[2] for one in bounds if one.startswith("pydantic>="))
    installed = run(
        python, "-c", "from importlib.metadata import version as v; print(v('pydantic'))"
    )
    assert installed.startswith(f"{least}.")
    run(
        python,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not real",
        *TESTS,
        *(f"--ignore={folder}" for folder in LEFT_OUT),
        PYTHONPATH=os.pathsep.join((str(ROOT / "agent"), str(ROOT / "exporters"))),
    )
