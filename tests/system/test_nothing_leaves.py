"""Nothing leaves the machine: an agent with its model, where there is no network but loopback.

The kernel counts in each network namespace what had no way out. That counts every attempt to
connect, of any library and whatever it does with the error.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "examples" / "mtrag.jsonl"
SCORED = 20  # of its traces, each by the model: a sample of so few would not load it
SECONDS = 120  # ONNX Runtime's first look-up came ten seconds after it was loaded
LIBRARY = "libonnxruntime"
ATTEMPT = """
import socket
try:
    socket.create_connection(("192.0.2.1", 443), 5)
except OSError:
    print(flush=True)
input()
"""


@contextmanager
def isolated(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with loopback as its only network; its id is that of the process returned."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None:
        pytest.skip("needs unshare and ip on the PATH: apt install util-linux iproute2")
    if subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a network namespace (unshare -rn)")
    with subprocess.Popen(
        [unshare, "-rn", "sh", "-c", f'{ip} link set lo up; exec "$@"', "sh", *command],
        env=environment,
        cwd=environment["HOME"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ways_not_found(pid: int) -> int:
    """How many packets or connections of the process's namespace had no way out."""
    four, six = (Path(f"/proc/{pid}/net/{name}").read_text() for name in ("snmp", "snmp6"))
    names, numbers = (line.split() for line in four.splitlines() if line.startswith("Ip:"))
    own = int(numbers[names.index("OutNoRoutes")])
    found = re.search(r"^Ip6OutNoRoutes\s+(\d+)", six, re.MULTILINE)
    return own + (int(found.group(1)) if found else 0)


# What a file has that reports to its makers, or can.
REPORTING = re.compile(
    rb"posthog|sentry_sdk|api\.segment\.io|mixpanel|google-analytics|amplitude\.com|send_telemetry"
    rb"|DISABLE_TELEMETRY|DO_NOT_TRACK|events\.data\.microsoft"
)
KNOWN = {
    "onnxruntime": "switched off before it is loaded",
    "huggingface-hub": "never imported: tokenizers are read from files",
    "hf-xet": "a part of huggingface-hub",
    "faust-streaming": "a contribution for Sentry, which is not installed",
}
"""Packages of the images that could send on their own, and why they do not."""


def packages_of_images() -> set[str]:
    """The names in the lock of all that the images hold, each once."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    packages: dict[str, list[dict[str, Any]]] = {}
    for package in lock["package"]:
        packages.setdefault(package["name"], []).append(package)
    (own,) = packages["ragmeter"]
    needed = [*own["dependencies"], *itertools.chain(*own["optional-dependencies"].values())]
    left = [one["name"] for one in needed]
    found = set[str]()
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [
                one["name"] for package in packages[name] for one in package.get("dependencies", ())
            ]
    return found


def test_what_could_send_on_its_own_is_known() -> None:
    found = set()
    for name in packages_of_images():
        try:
            files = metadata.files(name) or ()
        except metadata.PackageNotFoundError:
            continue  # for another system or version of Python
        for file in files:
            path = Path(str(file.locate()))
            reads = path.suffix in (".py", ".so") or ".so." in path.name
            if reads and path.is_file() and REPORTING.search(path.read_bytes()):
                found.add(name)
    assert found == KNOWN.keys()


def test_the_model_is_read_without_what_fetches_models() -> None:
    code = (
        "import sys; from ragmeter.scorers.mini.model import BUNDLED_FOLDER, load_model;"
        "load_model(BUNDLED_FOLDER); print([n for n in sys.modules if n.startswith('huggingface')])"
    )
    path = os.pathsep.join(str(ROOT / top) for top in ("agent", "exporters"))
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "[]"


def test_an_attempt_is_counted(tmp_path: Path) -> None:
    with isolated(sys.executable, "-c", ATTEMPT, HOME=str(tmp_path)) as process:
        until(lambda: ways_not_found(process.pid) > 0, seconds=60)


def test_an_agent_with_its_model_connects_to_nothing_and_writes_its_state_alone(
    tmp_path: Path,
) -> None:
    home, state, temporary = (tmp_path / name for name in ("home", "state", "tmp"))
    for folder in (home, state, temporary):
        folder.mkdir()
    settings = {"state": {"path": str(state / "ragmeter.sqlite")}, "sampling": {"model": 1}}
    config, traces = tmp_path / "ragmeter.yaml", tmp_path / "traces.jsonl"
    config.write_text(yaml.safe_dump(settings))
    traces.write_text("".join(TRACES.read_text("utf-8").splitlines(keepends=True)[:SCORED]))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(str(ROOT / top) for top in ("agent", "exporters")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = (sys.executable, "-m", "ragmeter", "run", "-c", str(config), "--replay", str(traces))
    with isolated(*command, **environment) as process:
        loaded = Path(f"/proc/{process.pid}/maps")
        until(lambda: LIBRARY in loaded.read_text(), seconds=200)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert process.poll() is None
            assert ways_not_found(process.pid) == 0
            time.sleep(1)
        given = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"ORT_DISABLE" not in given, "the code itself must see to it"
    assert any(state.iterdir())
    written = [path for folder in (home, temporary) for path in folder.rglob("*")]
    assert written == []
