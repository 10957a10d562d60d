"""The build stage of deploy/Dockerfile by hand: its commands, as they stand, in a fresh folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.deploy.dockerfile import stages
from tests.deploy.tools import ROOT
from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.real]

BUILD_SECONDS = 1500  # 249 s were measured with ten others at work on two cores
LARGEST = 290 * 2**20  # measured: 250 MB with the embedded model, its runtime and the bytecode
STOP_SECONDS = 15  # limits.drain_seconds and what it takes to end

# Everything is read-only but the two folders that the image leaves writable. The namespace is the
# test's own: nothing of the machine is changed.
READ_ONLY = """
set -e
mount --bind "$STATE" "$STATE"
mount --bind "$TMPDIR" "$TMPDIR"
mount -o remount,bind,ro /
exec "$@"
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the image has as /opt/ragmeter."""
    source = tmp_path_factory.mktemp("src")
    prefix = tmp_path_factory.mktemp("opt") / "ragmeter"
    for step in stages()["build"].all("COPY"):
        *names, target = step.split()
        for name in names:
            into = source / target
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, into, symlinks=True, ignore=ignored)
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, into)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for step in stages()["build"].all("RUN"):
        subprocess.run(
            ["sh", "-c", step],
            cwd=source,
            env=os.environ | {"PREFIX": str(prefix), "PATH": path, "PIP_NO_CACHE_DIR": "1"},
            check=True,
            timeout=BUILD_SECONDS,
        )
    return prefix


@contextmanager
def serving(prefix: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """The image's command with the image's settings, but for paths and ports of the test."""
    state, temporary = folder / "state", folder / "tmp"
    state.mkdir()
    temporary.mkdir()
    settings = yaml.safe_load((ROOT / "deploy" / "container.yaml").read_text(encoding="utf-8"))
    ports = {"otlp_port": free_port(), "metrics_port": free_port()}
    settings["http"] = {"host": "127.0.0.1", **ports}
    settings["state"] = {
        name: str(state / Path(path).name) for name, path in settings["state"].items()
    }
    (folder / "ragmeter.yaml").write_text(yaml.safe_dump(settings))
    command = stages()["runtime"].last("CMD")[:-1]
    environ = {"PATH": f"{prefix / 'bin'}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    environ |= {"STATE": str(state), "TMPDIR": str(temporary)}
    locked = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, "sh"]
    process = subprocess.Popen(
        [*locked, str(prefix / "bin" / "ragmeter"), *command, str(folder / "ragmeter.yaml")],
        cwd=state,
        env=environ,
    )
    try:
        yield process, ports
    finally:
        process.kill()
        process.wait()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
        return str(reply.read().decode())


@pytest.mark.timeout(BUILD_SECONDS + 60)
def test_prefix_is_small_and_whole(prefix: Path) -> None:
    size = sum(path.lstat().st_size for path in prefix.rglob("*"))
    assert size < LARGEST, f"{size / 2**20:.0f} MiB"
    python = prefix / "bin" / "python"
    every_command = (
        "import typer.main; from ragmeter.cli.main import app;"
        "list(typer.main.get_command(app).commands.values())"
    )
    subprocess.run([python, "-c", every_command], check=True, timeout=300)
    done = subprocess.run(
        [prefix / "bin" / "ragmeter", "--version"], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split()[-1] == "0.1.0"
    missing = subprocess.run([python, "-c", "import pytest"], capture_output=True, timeout=300)
    assert b"ModuleNotFoundError" in missing.stderr


@pytest.mark.timeout(BUILD_SECONDS + 60)
def test_serves_with_a_root_file_system_that_is_read_only(prefix: Path, tmp_path: Path) -> None:
    with serving(prefix, tmp_path) as (process, ports):
        metrics = f"http://127.0.0.1:{ports['metrics_port']}"
        end = time.monotonic() + PATIENCE
        while True:
            try:
                assert get(f"{metrics}/readyz") == "ready\n"
                break
            except OSError:
                assert process.poll() is None, "ended"
                assert time.monotonic() < end, "not ready"
                time.sleep(0.1)
        root = Path(f"/proc/{process.pid}/root")
        with pytest.raises(OSError, match="Read-only file system"):
            (root / str(tmp_path).lstrip("/") / "written").touch()
        line = (ROOT / "examples/mtrag.jsonl").read_bytes().split(b"\n")[0]
        post = urllib.request.Request(
            f"http://127.0.0.1:{ports['otlp_port']}/v1/rag/traces",
            data=line,
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(post, timeout=PATIENCE) as reply:
            assert reply.status == 200
        # the image's own health check, with this test's port
        words = json.loads(stages()["runtime"].all("HEALTHCHECK")[0].partition("CMD ")[2])
        code = words[-1].replace(":9464/", f":{ports['metrics_port']}/")
        subprocess.run([prefix / "bin" / "python", "-c", code], check=True, timeout=PATIENCE)
        assert "ragmeter_traces_received_total" in get(f"{metrics}/metrics")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS + 15) == 0
        assert time.monotonic() - began < STOP_SECONDS
    assert (tmp_path / "state" / "state.sqlite").is_file()
