"""Those who send to the agent of a chaos run, each in a thread, and the log of what it has taken.

A sender who must not lose anything sends again until it is answered 200. One of an overload gives
up where it is refused, but not where it was not answered: then nobody knows what became of it.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from ragmeter.ingest.files import HEAD

from tests.chaos.embedded.traffic import POISON, native, spans

__all__ = ["FileWriter", "HttpSender", "OtlpSender", "Overload", "Sender", "Taken"]

AGAIN_SHARE = 0.05  # of what was taken is sent a second time
POISON_SHARE = 0.02
PAUSE = 0.1  # seconds before what was not taken is sent again
PARTS = 4  # senders of an overload
CROWD = 20  # traces a request of theirs


class Taken:
    """What the agent has acknowledged, by way: native lines, or bodies of spans."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.lines: list[bytes] = []
        self.bodies: list[bytes] = []
        self.poison: list[int] = []
        """Positions in the file."""
        self.counts: Counter[str] = Counter()

    def add(self, lines: Sequence[bytes] = (), bodies: Sequence[bytes] = (), **by: int) -> None:
        with self._lock:
            self.lines += lines
            self.bodies += bodies
            self.counts.update(by)


class Sender(threading.Thread, ABC):
    """Sends `rate` traces a second until `stop`; what it is at then is brought to its end."""

    def __init__(self, name: str, seed: int, rate: float, url: str, taken: Taken) -> None:
        super().__init__(name=name, daemon=True)
        self._seed = seed
        self._chance = random.Random(f"{seed} {name}")
        self._rate = rate
        self._url = url
        self._taken = taken
        self._halt = threading.Event()
        self._give_up = threading.Event()
        self._client = httpx.Client(timeout=20, trust_env=False)
        self.error: BaseException | None = None

    @abstractmethod
    def step(self) -> int:
        """Send something; how many traces it was."""

    def run(self) -> None:
        try:
            due = time.monotonic()
            while not self._halt.is_set():
                due = max(due, time.monotonic() - 1) + self.step() / self._rate
                self._halt.wait(max(0.0, due - time.monotonic()))
        except BaseException as error:
            self.error = error
        finally:
            self._client.close()

    def halt(self) -> None:
        """Begin nothing more."""
        self._halt.set()

    def stop(self, seconds: float) -> bool:
        """Whether it has brought what it was at to its end by then."""
        self.halt()
        self.join(seconds)
        self._give_up.set()
        self.join(30)
        return not self.is_alive() and self.error is None

    def _post(self, path: str, body: bytes, *, patient: bool = True, form: str = "") -> bool:
        """Whether it was taken; not so only where it was refused every time."""
        headers = {"Content-Type": form} if form else {}
        unsure = False
        while not self._give_up.is_set():
            try:
                reply = self._client.post(f"{self._url}{path}", content=body, headers=headers)
            except httpx.ConnectError:
                pass
            except httpx.HTTPError:
                unsure = True
            else:
                if reply.status_code == 200:
                    return True
                if reply.status_code not in (429, 503):
                    raise AssertionError(f"{path}: {reply.status_code} {reply.text[:200]}")
                if not patient and not unsure:
                    return False
            time.sleep(PAUSE)
        raise TimeoutError(f"{path}: not taken to the end")


class HttpSender(Sender):
    """Requests of one to ten traces; some hold what cannot be read, some come twice."""

    way = "http"
    number = 0

    def step(self) -> int:
        lines = [self._line() for _ in range(self._chance.randint(1, 10))]
        body = list(lines)
        if self._chance.random() < POISON_SHARE:
            body.insert(self._chance.randrange(len(body) + 1), POISON[2])
        text = b"\n".join(body)
        self._post("/v1/rag/traces", text)
        self._taken.add(lines, http=len(lines))
        if self._chance.random() < AGAIN_SHARE:
            self._post("/v1/rag/traces", text)
        return len(lines)

    def _line(self) -> bytes:
        self.number += 1
        return native(self._seed, self.way, self.number, time.time())


class OtlpSender(Sender):
    """Children first, the root last; some come twice."""

    number = 0

    def step(self) -> int:
        self.number += 1
        bodies = spans(self._seed, self.number, time.time())
        for body in bodies:
            self._post("/v1/traces", body, form="application/x-protobuf")
        self._taken.add(bodies=bodies, otlp=1)
        if self._chance.random() < AGAIN_SHARE:
            for body in bodies:
                self._post("/v1/traces", body, form="application/x-protobuf")
        return 1


class FileWriter(Sender):
    """Appends to a file, at times half a line first; among the lines are poison and repetitions."""

    number = 0

    def __init__(self, name: str, seed: int, rate: float, path: Path, taken: Taken) -> None:
        super().__init__(name, seed, rate, "", taken)
        self._path = path
        # a file is known by its head, and is another one while that still grows
        while not path.exists() or path.stat().st_size < HEAD:
            self._begin(path)

    def _begin(self, path: Path) -> None:
        self.number += 1
        line = native(self._seed, "file", self.number, time.time())
        with path.open("ab") as file:
            file.write(line + b"\n")
        self._taken.add([line], file=1)

    def step(self) -> int:
        self.number += 1
        line = native(self._seed, "file", self.number, time.time())
        lines = [line]
        if self._chance.random() < AGAIN_SHARE:
            lines.append(line)
        with self._path.open("ab", buffering=0) as file:
            for one in lines:
                self._write(file.write, one)
            if self._chance.random() < POISON_SHARE:
                self._write(file.write, self._chance.choice(POISON))
                self._taken.poison.append(file.tell())
        self._taken.add([line], file=1)
        return 1

    def _write(self, write: Callable[[bytes], object], line: bytes) -> None:
        if self._chance.random() < 0.1:
            cut = self._chance.randrange(len(line))
            write(line[:cut])
            time.sleep(PAUSE)
            write(line[cut:] + b"\n")
        else:
            write(line + b"\n")


class Overload(Sender):
    """A crowd that sends as fast as `rate`, and gives up what is refused."""

    def __init__(
        self, part: int, seed: int, rate: float, url: str, taken: Taken, first: int
    ) -> None:
        super().__init__(f"overload-{part}", seed, rate, url, taken)
        self._number = first

    def step(self) -> int:
        now = time.time()
        numbers = range(self._number, self._number + CROWD)
        self._number += CROWD
        lines = [native(self._seed, "overload", number, now) for number in numbers]
        if self._post("/v1/rag/traces", b"\n".join(lines), patient=False):
            self._taken.add(lines, overload=CROWD)
        else:
            self._taken.add(refused=CROWD)
        return CROWD
