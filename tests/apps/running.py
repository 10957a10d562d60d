"""Running the applications: their own virtual environment, a live ragmeter, and what it read."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from tests.crash import RAGMETER, settings_file, start
from tests.ports import free_port
from tests.real import unavailable
from tests.waiting import PATIENCE

__all__ = ["Live", "application", "live_ragmeter", "python"]

ROOT = Path(__file__).parents[2]


def python() -> Path:
    """The interpreter that has the applications' packages.

    Without it the test is skipped, saying why; where CI=true it fails, as in tests/real.py.
    """
    folder = ROOT / ".venv-apps"
    stamp = folder / ".stamp"  # a copy of the lock, written when all of it was installed
    lock = ROOT / "uv.lock"
    if stamp.is_file() and stamp.read_bytes() == lock.read_bytes():
        return folder / "bin" / "python"
    return unavailable("needs the group apps of uv.lock in .venv-apps: make setup-apps")


def application(
    name: str, service: str, instrumentation: str, ragmeter: Live, model_url: str
) -> list[dict[str, Any]]:
    """Run an application to its end; what it says that it did, a document a request."""
    command = [str(python()), "-m", f"tests.apps.app_{name}", service, instrumentation]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **{key: os.environ[key] for key in ("HOME", "PATH", "TMPDIR") if key in os.environ},
            "OTEL_EXPORTER_OTLP_ENDPOINT": ragmeter.endpoint,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "MODEL_URL": model_url,
            # frameworks report their use to their makers
            "HAYSTACK_TELEMETRY_ENABLED": "False",
            "TRACELOOP_TELEMETRY": "false",
            "LANGSMITH_TRACING": "false",
            "ANONYMIZED_TELEMETRY": "False",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to export" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Live:
    """A running `ragmeter run`; `lines` is the output of `ragmeter inspect --live` beside it."""

    def __init__(self, port: int, page: int, lines: IO[str]) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.page = f"http://127.0.0.1:{page}"
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self.reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self.reader.start()

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._lines.put(json.loads(line))

    def traces(self, service: str) -> list[dict[str, Any]]:
        """What was read of a service since the last call, when all that was sent has been read."""
        deadline = time.monotonic() + PATIENCE
        while not (settled := self.counted(service)):
            assert time.monotonic() < deadline, self.metrics()
            time.sleep(0.1)
        found = [self._lines.get(timeout=PATIENCE) for _ in range(int(settled))]
        assert {trace["service"] for trace in found} == {service}
        return found

    def counted(self, service: str) -> float:
        """The requests of a service; 0 while there is something to do for any."""
        metrics = self.metrics()
        requests = {
            name: n for name, n in metrics.items() if name.startswith("rag_requests_total{")
        }
        received = metrics.get('ragmeter_traces_received_total{source="otlp"}')
        if metrics["ragmeter_otlp_open_traces"] or received != sum(requests.values()):
            return 0
        return sum(n for name, n in requests.items() if f'service="{service}"' in name)

    def dropped(self) -> float:
        """Traces that were no requests, for building an index and nothing else."""
        return self.metrics().get('ragmeter_otlp_dropped_total{reason="indexing"}', 0)

    def metrics(self) -> dict[str, float]:
        text = httpx.get(f"{self.page}/metrics").text
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}


@contextmanager
def live_ragmeter(folder: Path) -> Iterator[Live]:
    port, page = free_port(), free_port()
    config = settings_file(folder, otlp_port=port, metrics_port=page)
    tree = json.loads(config.read_text())
    tree["otlp"] = {"grace_seconds": 0.5, "idle_seconds": 10}
    tree["otlp"]["hash_ids"] = False
    config.write_text(json.dumps(tree))
    agent = start(folder, "run", "-c", config)
    watch = live = None
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(f"http://127.0.0.1:{page}/metrics"):
            assert time.monotonic() < deadline, (folder / "talk.txt").read_text()
            time.sleep(0.1)
        watch = subprocess.Popen(
            [*RAGMETER, "inspect", "--live", "-c", config, "-f", "jsonl"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert watch.stdout is not None
        assert watch.stderr is not None
        assert "watching" in watch.stderr.readline()
        live = Live(port, page, watch.stdout)
        yield live
    finally:
        for process in (watch, agent):
            if process is not None:
                process.kill()
                process.wait()
        if live is not None:
            live.reader.join()
        if watch is not None and watch.stderr is not None:
            watch.stderr.close()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False
