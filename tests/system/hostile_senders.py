"""Senders that mean harm, against a real process: `python -m tests.system.hostile_senders`.

It starts `ragmeter run`, plays each attack with an honest sender beside it, and prints what the
process took in memory and what the honest sender saw: so did one of a second process, which nobody
attacks, on the same machine at the same time.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.crash import settings_file, start
from tests.ports import free_port

MB = 2**20
PATIENCE = 120.0
STORM = 8  # bodies, two rounds of four at a time


def resident_mb(pid: int) -> float:
    """Memory of a process and its children in MB.

    Pages of files count once, and in full: which other processes of the machine share them changes
    from second to second, and with it what the kernel calls the proportional size.
    """
    anonymous = 0
    files = [0]
    for each in [pid, *children(pid)]:
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            continue
        sizes = {
            key: int(rest.split()[0]) for key, _, rest in (one.partition(":") for one in lines)
        }
        own = sizes.get("Anonymous", 0)
        anonymous += own
        files.append(sizes.get("Rss", 0) - own)
    return (anonymous + max(files)) / 1024


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    found: list[int] = []
    for task in tasks:
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return [each for child in found for each in (child, *children(child))]


def post(url: str, path: str, kind: str, content: bytes) -> str:
    """The status of a request over a connection of its own, or the name of what went wrong."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    try:
        connection.request("POST", path, content, {"Content-Type": kind})
        reply = connection.getresponse()
        reply.read()
        return str(reply.status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


@dataclass
class Honest:
    """A sender of small traces, each over a connection of its own, with the time of each reply."""

    url: str
    pause: float = 0.02
    answer: str = "Five years [1]. " * 20
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @contextmanager
    def sending(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _run(self, stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            trace = {
                "trace_id": f"h{id(self):x}-{number}",
                "service": "honest",
                "timestamp": time.time(),
                "query": "how long is the warranty?",
                "answer": self.answer,
            }
            content = json.dumps(trace).encode()
            begun = time.monotonic()
            self.outcomes[post(self.url, "/v1/rag/traces", "application/json", content)] += 1
            self.seconds.append(time.monotonic() - begun)
            stop.wait(self.pause)

    def p99(self) -> float:
        return sorted(self.seconds)[max(0, -(-99 * len(self.seconds) // 100) - 1)]

    def __str__(self) -> str:
        return (
            f"{dict(self.outcomes)}, p50 {statistics.median(self.seconds) * 1e3:.0f} ms,"
            f" p99 {self.p99() * 1e3:.0f} ms, max {max(self.seconds) * 1e3:.0f} ms"
        )


class Target:
    """A `ragmeter run` as the chart starts it, on one core, with free ports."""

    def __init__(self, folder: Path) -> None:
        self.port, self.page = free_port(), free_port()
        config = settings_file(folder)
        tree = json.loads(config.read_text())
        tree["http"] = {"otlp_port": self.port, "metrics_port": self.page}
        config.write_text(json.dumps(tree))
        self.process = start(folder, "run", "-c", config)
        self.url = f"http://127.0.0.1:{self.port}"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{self.page}/readyz", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError((folder / "talk.txt").read_text())
            time.sleep(0.2)
        self.peak = 0.0

    @property
    def rss(self) -> float:
        return resident_mb(self.process.pid)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the peak of memory meanwhile."""
        stop = threading.Event()
        self.peak = 0.0

        def run() -> None:
            while not stop.wait(0.05):
                self.peak = max(self.peak, self.rss)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def honest(self) -> Honest:
        return Honest(self.url)


@contextmanager
def target() -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        made = Target(Path(folder))
        try:
            yield made
        finally:
            made.process.terminate()
            made.process.wait(60)


def repeated(piece: bytes, size: int, head: bytes = b"", tail: bytes = b"") -> bytes:
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


_SPAN_HEAD = b'{"resourceSpans":[{"scopeSpans":[{"spans":['
_SIZE = 19 * MB
BODIES: dict[str, Callable[[], tuple[str, str, bytes]]] = {
    # (path, content type, body)
    "otlp json, empty objects": lambda: (
        "/v1/traces",
        "application/json",
        repeated(b"{},", _SIZE, _SPAN_HEAD, b"{}]}]}]}"),
    ),
    "otlp json, as many as may be": lambda: (
        "/v1/traces",
        "application/json",
        repeated(
            b'{"traceId":"%032x","spanId":"%016x","attributes":[{"key":"aaaaaaaa","value":'
            b'{"stringValue":"bbbbbbbb"}}]},' % (7, 8),
            _SIZE,
            _SPAN_HEAD,
            b"{}]}]}]}",
        ),
    ),
    "otlp json, strings of commas": lambda: (
        "/v1/traces",
        "application/json",
        repeated(b'","', _SIZE, _SPAN_HEAD + b'"', b'"]}]}]}'),
    ),
    "otlp protobuf, empty spans": lambda: (
        "/v1/traces",
        "application/x-protobuf",
        repeated(b"\x12\x00", _SIZE),
    ),
    "native, numbers": lambda: (
        "/v1/rag/traces",
        "application/json",
        repeated(b"1,", _SIZE, b"[", b"1]"),
    ),
    "native, strings": lambda: (
        "/v1/rag/traces",
        "application/json",
        repeated(b'"a,",', _SIZE, b"[", b'""]'),
    ),
    "native, lines": lambda: ("/v1/rag/traces", "application/json", repeated(b"{}\n", _SIZE)),
    "feedback, lines": lambda: ("/v1/feedback", "application/json", repeated(b"{}\n", _SIZE)),
}


def storm(
    url: str, body: tuple[str, str, bytes], *, count: int = STORM, at_a_time: int = 4
) -> Counter[str]:
    """Post a body `count` times."""
    path, kind, content = body
    outcomes: Counter[str] = Counter()
    left = threading.Semaphore(count)

    def send() -> None:
        while left.acquire(blocking=False):
            outcomes[post(url, path, kind, content)] += 1

    threads = [threading.Thread(target=send) for _ in range(at_a_time)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def half_sent(url: str, length: int, sent: int) -> socket.socket | None:
    """A request that stops after `sent` bytes of its body; None where it is not let in."""
    host, _, port = url.removeprefix("http://").partition(":")
    try:
        made = socket.create_connection((host, int(port)), timeout=10)
        made.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: %d\r\n\r\n" % length
        )
        made.sendall(b"\n" * sent)
    except OSError:
        return None
    return made


@contextmanager
def many_sockets(url: str, count: int = 600) -> Iterator[None]:
    """So many requests of which one byte of the body comes; each that is closed is made anew."""
    stop = threading.Event()

    def run() -> None:
        held: list[socket.socket] = []
        while not stop.is_set():
            while len(held) < count and not stop.is_set():
                if (made := half_sent(url, 1000, 1)) is not None:
                    made.setblocking(False)
                    held.append(made)
            for one in list(held):
                with suppress(BlockingIOError):
                    try:
                        gone = one.recv(4096) == b""
                    except ConnectionError:
                        gone = True
                    if gone:
                        one.close()
                        held.remove(one)
            stop.wait(0.2)
        for one in held:
            one.close()

    yield from _in_thread(run, stop)


@contextmanager
def stalled_bodies(url: str, count: int = 4, size: int = 20 * MB) -> Iterator[None]:
    """Bodies without their last ten bytes; each that is refused is sent anew."""
    stop = threading.Event()

    def run() -> None:
        held: list[socket.socket] = []
        while not stop.is_set():
            while len(held) < count and not stop.is_set():
                if (made := half_sent(url, size, size - 10)) is not None:
                    made.setblocking(False)
                    held.append(made)
            for one in list(held):
                with suppress(BlockingIOError):
                    with suppress(ConnectionError):
                        one.recv(4096)
                    one.close()
                    held.remove(one)
            stop.wait(0.2)
        for one in held:
            one.close()

    yield from _in_thread(run, stop)


def _in_thread(run: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        time.sleep(1)
        yield
    finally:
        stop.set()
        thread.join()


BLOCKERS = {"600 sockets of one byte": many_sockets, "4 stalled bodies of 20 MB": stalled_bodies}


def block(agent: Target, name: str, seconds: float) -> tuple[Honest, Honest]:
    """Honest senders of small and of larger traces while others block."""
    small, larger = agent.honest(), agent.honest()
    larger.answer = "Five years [1]. " * 20_000
    larger.pause = 0.5
    with BLOCKERS[name](agent.url), small.sending(), larger.sending():
        time.sleep(seconds)
    return small, larger


def main() -> None:
    for name in sys.argv[1:] or [*BLOCKERS, *BODIES]:
        if name in BLOCKERS:
            with target() as agent:
                small, larger = block(agent, name, 30)
                print(f"{name}: small {small}; larger {larger}", flush=True)
            continue
        body = BODIES[name]()
        with target() as agent, target() as beside:
            for one in (agent, beside):
                with one.honest().sending():
                    time.sleep(2)
            print(f"{name}: fresh {agent.rss:.0f} MB", flush=True)
            for _ in range(2):
                honest = agent.honest()
                calm = beside.honest()
                begun = time.monotonic()
                with agent.watched(), honest.sending(), calm.sending():
                    outcomes = storm(agent.url, body)
                seconds = time.monotonic() - begun
                time.sleep(3)
                print(
                    f"  {dict(outcomes)} in {seconds:.1f} s; peak {agent.peak:.0f} MB, then"
                    f" {agent.rss:.0f} MB; honest {honest}; at a process beside it {calm}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
