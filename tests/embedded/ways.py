"""Ways in, as the conformance suite sees them. A source of another engine is one more class here.

The contract of a source, which `test_sources_agree.py` tries on each:

- it delivers: what was given is counted, once;
- it acknowledges what is durable, and no earlier;
- after a crash it delivers again what it had not acknowledged;
- what cannot be read is a dead letter with its bytes and its reason, and holds up nothing;
- it says how much waits;
- it stops within a bounded time, with status 0.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import httpx
from kafka.errors import KafkaError
from ragmeter.app.parts import PARTS
from ragmeter.kafka.operator.administration import PartitionLag, read_lag

from tests.crash import settings_file, start
from tests.kafka.cluster import by_service
from tests.kafka.place import Place
from tests.ports import free_port

__all__ = ["FileWay", "HttpWay", "KafkaWay", "Way"]

WAITING = re.compile(r"^ragmeter_queue_depth (\S+)$", re.MULTILINE)
BATCH = 50  # lines that are acknowledged together


class Way(Protocol):
    """All may be asked while the process is down, and say then what they know."""

    count: int
    """Traces that take it a second or more, so that a kill comes in the middle."""

    def give(self, lines: Sequence[bytes]) -> None:
        """Before the start: to be delivered, by whoever sends, until it is acknowledged."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def stop(self, seconds: float) -> int:
        """SIGTERM; the exit status. Raises where it takes longer."""

    def acknowledged(self) -> int:
        """Lines that are never delivered again; those that cannot be read are among them."""

    def waiting(self) -> float:
        """What the source says is still to be counted."""

    def counted(self) -> dict[str, int]:
        """Traces by service, of those that have any."""

    def dead(self) -> list[tuple[bytes, str]]:
        """Bytes and reason of each dead letter."""

    def close(self) -> None: ...


class _Embedded:
    """One process with a state file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.otlp, self.metrics = free_port(), free_port()
        self._config = settings_file(folder, otlp_port=self.otlp, metrics_port=self.metrics)
        self._process: subprocess.Popen[bytes] | None = None

    def arguments(self) -> list[str | Path]:
        return []

    def start(self) -> None:
        self._process = start(self.folder, "run", "-c", self._config, *self.arguments())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, seconds: float) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(seconds)

    def _page(self) -> str:
        try:
            return httpx.get(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10).text
        except httpx.TransportError:
            return ""

    def waiting(self) -> float:
        return sum(map(float, WAITING.findall(self._page())))

    def counted(self) -> dict[str, int]:
        return dict(+by_service(self._page()))

    def close(self) -> None:
        self.kill()


class FileWay(_Embedded):
    """A file that is replayed. Acknowledged is what its stored position has passed."""

    count = 4500

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = folder / "traces.jsonl"

    def give(self, lines: Sequence[bytes]) -> None:
        with self._file.open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    def arguments(self) -> list[str | Path]:
        return ["--replay", self._file]

    def acknowledged(self) -> int:
        received = re.findall(
            r"^ragmeter_(?:traces_received|dead_letters)_total\{.*\} (\S+)$",
            self._page(),
            re.MULTILINE,
        )
        return int(sum(map(float, received)))

    def dead(self) -> list[tuple[bytes, str]]:
        path = self.folder / "s.sqlite.dead-letters.jsonl"
        letters = map(json.loads, path.read_text().splitlines()) if path.exists() else []
        return [(one["raw"].encode(), one["reason"]) for one in letters]


class HttpWay(_Embedded):
    """A client that repeats each body until it is answered; its answer is the acknowledgement,
    and says with reasons what cannot be read."""

    count = 900

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._bodies: list[list[bytes]] = []
        self._done = 0
        self._dead: list[tuple[bytes, str]] = []
        self._over = threading.Event()
        self._sender: threading.Thread | None = None

    def give(self, lines: Sequence[bytes]) -> None:
        self._bodies = [list(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)]
        self._sender = threading.Thread(target=self._send)
        self._sender.start()

    def _send(self) -> None:
        url = f"http://127.0.0.1:{self.otlp}/v1/rag/traces"
        for body in self._bodies:
            while not self._over.is_set():
                try:
                    answer = httpx.post(url, content=b"\n".join(body), timeout=20)
                except httpx.TransportError:
                    self._over.wait(0.05)
                    continue
                if answer.status_code == 200:
                    errors = answer.json().get("errors", ())
                    self._dead += [(body[one["index"]], one["reason"]) for one in errors]
                    self._done += len(body)
                    break
                self._over.wait(0.05)

    def acknowledged(self) -> int:
        return self._done

    def dead(self) -> list[tuple[bytes, str]]:
        return list(self._dead)

    def close(self) -> None:
        self._over.set()
        if self._sender is not None:
            self._sender.join()
        super().close()


class KafkaWay:
    """A worker of a group; acknowledged is what the group has committed."""

    count = 9000

    def __init__(self, place: Place) -> None:
        self._place = place
        self._worker = place.worker()

    def give(self, lines: Sequence[bytes]) -> None:
        self._place.produce(lines)

    def start(self) -> None:
        self._worker.start()

    def kill(self) -> None:
        if self._worker.process is not None:
            self._worker.kill()

    def stop(self, seconds: float) -> int:
        return self._worker.stop(seconds)

    def _rows(self) -> list[PartitionLag]:
        while True:
            try:
                return read_lag(self._place.settings, PARTS)
            except KafkaError as error:  # the group's coordinator is on its way
                if not error.retriable:
                    raise
                time.sleep(0.2)

    def acknowledged(self) -> int:
        rows = self._rows()
        return sum((row.committed or 0) for row in rows if row.topic == self._place.traces)

    def waiting(self) -> float:
        return sum(row.lag for row in self._rows())

    def counted(self) -> dict[str, int]:
        return dict(+by_service(self._worker.exposition()))

    def dead(self) -> list[tuple[bytes, str]]:
        return [
            (letter.value, dict(letter.headers)["reason"].decode())
            for letter in self._place.letters()
        ]

    def close(self) -> None:
        self.kill()
