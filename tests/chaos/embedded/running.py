"""The agent of a chaos run: a real process that is ended, stopped, and started again as a
supervisor would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.embedded.clock import Clock
from tests.chaos.embedded.disk import Disk
from tests.ports import free_port
from tests.samples import samples

__all__ = ["Agent"]

ROOT = Path(__file__).parents[3]
AGAIN_SECONDS = 1.0  # a supervisor's pause after an agent that has ended by itself
SERVING = "serving until Ctrl-C"
STOP_SECONDS = 60.0  # `limits.drain_seconds` is 10; a busy machine


class Agent:
    """`tree` are its settings but for ports; `files` are replayed at each start."""

    def __init__(
        self,
        folder: Path,
        tree: dict[str, Any],
        files: Sequence[Path],
        say: Callable[[str], None],
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.page = free_port(), free_port()
        self._config = folder / "config.json"
        http = {"otlp_port": self.port, "metrics_port": self.page}
        self._config.write_text(json.dumps({**tree, "http": http}))
        self._talk = folder / "talk.txt"
        self._files = [part for file in files for part in ("--replay", str(file))]
        self._say = say
        self._disk, self._clock = disk, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(timeout=30, trust_env=False)
        self._due = 0.0
        self._begun = 0  # of the talk of this process
        self._pump: threading.Thread | None = None
        self._answered = False
        self._met = False
        self.peak_mb = 0.0
        self.starts = 0
        self.own_exits: list[tuple[int, bool]] = []
        """Status, and whether that process has met a disk at fault."""

    # What is done to it -------------------------------------------------------------------------

    def start(self) -> None:
        command = [sys.executable, "-m", "ragmeter"]
        if self._clock is not None:
            command = [sys.executable, "-m", "tests.chaos.embedded.clock", str(self._clock.path)]
        command += ["run", "-c", str(self._config), *self._files]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._begun = self._talk.stat().st_size if self._talk.exists() else 0
        process = self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=env
        )
        self.limit()
        # by a pipe: what is limited to files of no size could not tell us so in a file
        self._pump = threading.Thread(target=self._copy, args=(process,), daemon=True)
        self._pump.start()
        self._answered = False
        self._met = self._disk is not None and self._disk.faulty
        self.starts += 1

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with self._talk.open("ab", buffering=0) as talk, process.stdout as notified:
            while part := notified.read1():  # type: ignore[attr-defined]
                talk.write(part)

    def limit(self) -> None:
        """Pass on what the disk refuses."""
        if self._disk is not None and self.running:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                self._disk.limit(self._process.pid)

    @property
    def up(self) -> bool:
        """Whether it takes connections, or has since its start."""
        if not self.running:
            self._answered = False
        elif not self._answered:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=0.2),
            ):
                self._answered = True
        return self._answered

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, down: float) -> None:
        """SIGKILL; started again after `down` seconds."""
        self._signal(signal.SIGKILL)
        self._ended(down)

    def stop(self, down: float = 0.0) -> int | None:
        """SIGTERM; its exit status, None where it did not end in time or was not running."""
        if not self.running:
            return None
        self._signal(signal.SIGTERM)
        assert self._process is not None
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill(down)
            return None
        self._ended(down)
        return status

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None
            self._watch()
            self._process.send_signal(number)

    def _ended(self, down: float) -> None:
        if self._process is not None:
            self._process.wait()
            if self._pump is not None:
                self._pump.join(10)
            self._process = None
        self._due = time.monotonic() + down

    def tend(self) -> None:
        """Start it again where it is due, and look at its memory."""
        self._met = self._met or (self._disk is not None and self._disk.faulty)
        if self.running:
            self._watch()
            return
        if self._process is not None:
            self.own_exits.append((self._process.returncode, self._met))
            self._say(f"the agent has ended by itself with {self._process.returncode}")
            self._ended(AGAIN_SECONDS)
        if time.monotonic() >= self._due:
            self.start()

    def _watch(self) -> None:
        assert self._process is not None
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.peak_mb = max(self.peak_mb, int(line.split()[1]) / 1024)

    def close(self) -> None:
        if self.running:
            self.kill(0)
        self._client.close()

    # What it says -------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Its export; nothing where it does not answer."""
        text = ""
        for path in ("/metrics", "/metrics/detail"):
            try:
                reply = self._client.get(f"http://127.0.0.1:{self.page}{path}")
            except httpx.HTTPError:
                return {}
            if reply.status_code != 200:
                return {}
            text += reply.text
        return samples(text)

    def unready(self) -> str:
        """Why it is not ready; empty where it is."""
        try:
            reply = self._client.get(f"http://127.0.0.1:{self.page}/readyz")
        except httpx.HTTPError as error:
            return repr(error)
        return "" if reply.status_code == 200 else reply.text.strip()

    @property
    def serving(self) -> bool:
        """Whether this process has read its files to the end and counted them."""
        if not self.running or not self._talk.exists():
            return False
        with self._talk.open("rb") as talk:
            talk.seek(self._begun)
            return SERVING.encode() in talk.read()
