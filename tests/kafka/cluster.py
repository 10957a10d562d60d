"""Workers and traffic for tests that run `ragmeter worker` against a real Kafka."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kafka_server import KafkaServer
from tests.ports import free_port
from tests.samples import samples
from tests.traces import trace_line
from tests.waiting import PATIENCE

__all__ = [
    "SERVICES",
    "SETTINGS",
    "Worker",
    "by_service",
    "quality",
    "traffic",
    "workers",
]

COUNTED = re.compile(r'^rag_requests_total\{service="([^"]+)".*\} (\S+)$', re.MULTILINE)
SERVICES = ("bot", "search", "shop", "help", "wiki")
SETTINGS: dict[str, Any] = {
    "windows": ["1h", "24h"],
    # of one partition as of all: what is one service's alone
    "drift": {"enabled": False},
}


def traffic(count: int = 300) -> list[bytes]:
    """Traces of several services within five minutes, and one in 50 that cannot be read."""
    lines = []
    for n in range(count):
        status = "error" if n % 17 == 0 else "ok"
        answer = "" if n % 23 == 0 else f"Click Forgot password {n} [1]."
        service = SERVICES[n % len(SERVICES)]
        line = trace_line(n, service=service, status=status, answer=answer)
        lines.append(line if n % 50 != 7 else b"{no json " + str(n).encode())
    return lines


class Worker:
    """A worker process; `log` is what it said. `program` are Python's arguments that start it."""

    def __init__(
        self,
        server: KafkaServer,
        folder: Path,
        name: str,
        *,
        settings: Mapping[str, Any] = SETTINGS,
        program: Sequence[str] = ("-m", "ragmeter"),
        **kafka: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._log = folder / f"{name}.log"
        config = folder / f"{name}.json"
        section = {"bootstrap_servers": [server.bootstrap], **kafka}
        http = {"metrics_port": self.port}
        config.write_text(json.dumps({**settings, "http": http, "kafka": section}))
        self._command = [sys.executable, *program, "worker", "--config", str(config)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Worker:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, "COLUMNS": "200"}
            )
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = PATIENCE) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def get(self, path: str) -> str:
        """ "" while it cannot be asked."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as refused:
            refused.close()
            return ""
        except OSError:
            return ""

    @property
    def ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log[-3000:]
        return bool(self.get("/readyz"))

    def exposition(self) -> str:
        """Its numbers and those of every scorer; not of one moment."""
        return self.get("/metrics") + self.get("/metrics/detail")

    def metrics(self) -> dict[str, float]:
        return samples(self.exposition())

    def traces(self) -> float:
        """How many are counted, of all services and states."""
        found = self.metrics().items()
        return sum(value for name, value in found if name.startswith("rag_requests_total"))


def by_service(page: str) -> Counter[str]:
    """Traces that are counted, by service; of one that is exported and has none, 0."""
    found: Counter[str] = Counter()
    for service, value in COUNTED.findall(page):
        found[service] += int(float(value))
    return found


def quality(found: dict[str, float]) -> dict[str, float]:
    """What the services' own records determine: gauges, histograms and counts of operation.

    Whether an alert is pending or firing hangs on when the rules were evaluated.
    """
    return {
        name: value
        for name, value in found.items()
        if name.startswith("rag_") and 'service="' in name and "rag_incident_open" not in name
    }


@contextmanager
def workers(*all_: Worker) -> Iterator[None]:
    """Running; killed at the end."""
    try:
        for worker in all_:
            worker.start()
        yield
    finally:
        for worker in all_:
            if worker.process is not None and worker.process.poll() is None:
                worker.kill()
