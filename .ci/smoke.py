"""`make run` as a stranger would: in a fresh clone, looked at over HTTP, ended by Ctrl-C.

Standard library only: it runs before anything is set up. Exit status 0 or 1.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

INGEST_PORT, METRICS_PORT = 4318, 9464
METRICS_URL = f"http://127.0.0.1:{METRICS_PORT}"
START_SECONDS = 900  # set-up with a warm or cold cache, and the replay
STOP_SECONDS = 120  # longer than the agent's own bound on draining


class Failure(Exception):
    """What did not hold, in words."""


def fetch(path: str) -> str | None:
    """The body of a page, None while nobody answers or the answer is no 200."""
    try:
        with urllib.request.urlopen(METRICS_URL + path, timeout=30) as response:
            body: bytes = response.read()
            return body.decode()
    except (urllib.error.URLError, OSError):
        return None


def wait(what: str, ready: Callable[[], bool], make: subprocess.Popen[bytes], end: float) -> None:
    while not ready():
        if make.poll() is not None:
            raise Failure(f"make run ended with status {make.returncode} before {what}")
        if time.monotonic() > end:
            raise Failure(f"no {what} within {START_SECONDS} s")
        time.sleep(0.5)


def children(parent: int) -> list[int]:
    """Processes whose parent is `parent`, from /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state ppid ...": the name may hold anything, so read after its ")".
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def check_ports() -> None:
    for port in (INGEST_PORT, METRICS_PORT):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise Failure(f"port {port} is taken by another process: stop that one first")


@contextmanager
def running(clone: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    # A process started in the background of a script ignores SIGINT, and so would its children:
    # a handler of ours makes the children start with the default again.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environment = {key: value for key, value in os.environ.items() if key[:9] != "RAGMETER_"}
    with log.open("wb") as out:
        make = subprocess.Popen(
            ["make", "run"],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield make
    finally:
        if make.poll() is None:
            os.killpg(make.pid, signal.SIGKILL)
            make.wait()


def check(clone: Path, log: Path) -> None:
    started = time.monotonic()
    end = started + START_SECONDS
    with running(clone, log) as make:
        wait("/readyz", lambda: fetch("/readyz") is not None, make, end)
        print(f"ready {time.monotonic() - started:.0f} s after `make run`, set-up included")
        # The replay may go on when the agent is ready.
        metrics = "/metrics with rag_answered_ratio"
        wait(metrics, lambda: "\nrag_answered_ratio{" in (fetch("/metrics") or ""), make, end)
        print(f"grounding measured {time.monotonic() - started:.0f} s after `make run`")
        wait("status page with help-desk", lambda: "help-desk" in (fetch("/") or ""), make, end)
        producer = [clone / ".venv/bin/python", clone / "examples/producer.py"]
        subprocess.run(producer, check=True, timeout=300)

        agents = children(make.pid)
        if len(agents) != 1:
            raise Failure(f"make run has {len(agents)} child processes, not the agent alone")
        # To the agent alone: make itself would report the signal as its own end.
        os.kill(agents[0], signal.SIGINT)
        try:
            status = make.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"still running {STOP_SECONDS} s after Ctrl-C") from None
        if status != 0:
            raise Failure(f"exit status {status} after Ctrl-C, not 0")
        print("ended by Ctrl-C with status 0")


def main() -> int:
    source = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        clone, log = Path(folder) / "ragmeter", Path(folder) / "run.log"
        try:
            check_ports()
            subprocess.run(
                ["git", "clone", "--quiet", str(source), str(clone)], check=True, timeout=120
            )
            check(clone, log)
        except (Failure, subprocess.SubprocessError) as problem:
            if log.exists():
                print("---- output of make run ----")
                print(log.read_text(errors="replace")[-20_000:])
                print("----------------------------")
            print(f"smoke run failed: {problem}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
