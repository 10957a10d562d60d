"""The workers of a chaos run: killed, stopped, frozen, started again, and watched."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from tests.chaos.kafka.faults import Fault
from tests.kafka.cluster import Worker, by_service
from tests.kafka_server import KafkaNode, KafkaServer

__all__ = ["Pool"]

MOST = 4
STOP_SECONDS = 60.0


class Pool:
    """Call `act` for each fault and `tend` often, from one thread."""

    def __init__(
        self, make: Callable[[str], Worker], server: KafkaServer, say: Callable[[str], None]
    ) -> None:
        self._make = make
        self._server = server
        self._say = say
        self.workers: dict[str, Worker] = {}
        self.frozen: dict[str, float] = {}  # when it goes on
        self._due: dict[str, float] = {}  # when it is started again
        self._down: threading.Thread | None = None  # of a broker that is to come back
        self._waiting: deque[Fault] = deque()  # for a broker that is down to be up again
        self.done: Counter[str] = Counter()
        self.own_exits: list[str] = []
        self.bad_stops: list[str] = []

    def start(self, count: int) -> None:
        for name in "abcd"[:count]:
            self._start(name)

    def _start(self, name: str) -> None:
        if name not in self.workers:
            self.workers[name] = self._make(name)
        self.workers[name].start()
        self._due.pop(name, None)

    def running(self) -> dict[str, Worker]:
        """Those that have not ended, frozen ones too."""
        return {
            name: worker
            for name, worker in self.workers.items()
            if worker.process is not None and worker.process.poll() is None
        }

    def awake(self) -> dict[str, Worker]:
        """Those that can answer."""
        return {name: one for name, one in self.running().items() if name not in self.frozen}

    def ready(self) -> list[str]:
        return [name for name, worker in self.awake().items() if worker.get("/readyz")]

    def act(self, fault: Fault) -> None:
        awake = (fault.aimed and self.ready()) or list(self.awake())
        kind = fault.kind
        if kind.startswith("broker"):
            self._broker(fault)
            return
        if kind == "lose-node":
            self.lose_node(fault.victim)
            return
        if kind == "join":
            free = [name for name in "abcd"[:MOST] if name not in self.workers]
            if free:
                self._say(f"worker {free[0]} joins")
                self._start(free[0])
                self.done["join"] += 1
            return
        # when all are down already the next one that comes up takes it
        if not awake and self._due:
            self._start(min(self._due, key=lambda name: self._due[name]))
            awake = list(self.awake())
        if not awake:
            return
        name = awake[int(fault.victim * len(awake))]
        worker = self.workers[name]
        now = time.monotonic()
        assert worker.process is not None
        self.done[kind] += 1
        if kind == "freeze":
            self._say(f"SIGSTOP {name} for {fault.lasts:.1f} s")
            worker.process.send_signal(signal.SIGSTOP)
            self.frozen[name] = now + fault.lasts
        elif kind == "kill":
            self._say(f"SIGKILL {name}, back in {fault.lasts:.1f} s")
            worker.kill()
            self._due[name] = now + fault.lasts
        else:
            self._say(f"SIGTERM {name}, back {fault.lasts:.1f} s after its end")
            threading.Thread(target=self._stop, args=(name, worker, fault.lasts)).start()

    def _stop(self, name: str, worker: Worker, down: float) -> None:
        self._due[name] = time.monotonic() + STOP_SECONDS + 5
        try:
            status = worker.stop(STOP_SECONDS)
        except Exception:
            worker.kill()
            status = -9
        if status:
            # allowed: a broker that is down at that moment; reported all the same
            self.bad_stops.append(f"{name} ended with {status} after SIGTERM")
        self._due[name] = time.monotonic() + down

    def _broker(self, fault: Fault) -> None:
        """All of a single node, one of several; where one is down already, when it is back."""
        up = [node for node in self._server.nodes if node.pid is not None]
        if self._down is not None or not up:
            self._waiting.append(fault)
            return
        node = up[int(fault.victim * len(up))]
        kill = fault.kind == "broker-kill"
        name = f"broker {node.folder.name}"
        self._say(f"{name}: {'SIGKILL' if kill else 'SIGTERM'}, back in {fault.lasts:.1f} s")
        if kill:
            node.kill()
        else:
            node.stop()
        self.done[fault.kind] += 1
        self._down = threading.Thread(target=self._bring_back, args=(node, fault.lasts))
        self._down.start()

    def _bring_back(self, node: KafkaNode, down: float) -> None:
        """Aside, for a broker takes half a minute to start on a busy machine."""
        time.sleep(down)
        node.start()
        self._say(f"broker {node.folder.name} is up")

    def lose_node(self, victim: float) -> None:
        """SIGKILL, and it never comes back."""
        node = self._server.nodes[int(victim * len(self._server.nodes))]
        self._say(f"broker {node.folder.name}: SIGKILL for good")
        node.kill()
        self.done["lose-node"] += 1

    def tend(self) -> None:
        """Start what is due, wake what has slept long enough, replace what ended by itself."""
        now = time.monotonic()
        if self._down is not None and not self._down.is_alive():
            self._down = None
            if self._waiting:
                self._broker(self._waiting.popleft())
        for name in [name for name, at in self.frozen.items() if now >= at]:
            del self.frozen[name]
            process = self.workers[name].process
            if process is not None and process.poll() is None:
                self._say(f"SIGCONT {name}")
                process.send_signal(signal.SIGCONT)
        for name, worker in self.workers.items():
            assert worker.process is not None
            if worker.process.poll() is not None and name not in self._due:
                why = self._last_words(worker)
                self._say(f"{name} ended by itself with {worker.process.returncode}: {why}")
                self.own_exits.append(f"{name}: {why}")
                self._due[name] = now + 1.0
        for name in [name for name, at in list(self._due.items()) if now >= at]:
            self._say(f"{name} starts again")
            self._start(name)

    @staticmethod
    def _last_words(worker: Worker) -> str:
        reported = [line for line in worker.log.splitlines() if "the worker stopped" in line]
        reported += [line for line in worker.log.splitlines()[-400:] if "stalled;" in line]
        return (reported or worker.log.splitlines() or ["nothing"])[-1].strip()[:300]

    @property
    def settled(self) -> bool:
        """Whether nothing is still to be started or woken."""
        return not (self._due or self.frozen or self._waiting) and self._down is None

    def look(self) -> tuple[float, list[str]]:
        """How many traces are counted by those that can answer; and services that two workers
        export at the same time, seen at each before and after they were seen at the other."""
        awake = self.awake()
        first = {name: by_service(worker.exposition()) for name, worker in awake.items()}
        counted = sum(sum(found.values()) for found in first.values())
        if len(awake) < 2:
            return counted, []
        second = {name: by_service(worker.exposition()) for name, worker in awake.items()}
        always = {name: first[name].keys() & second[name].keys() for name in awake}
        pairs = itertools.combinations(awake, 2)
        return counted, [
            f"{service} by {one} and {other}"
            for one, other in pairs
            for service in sorted(always[one] & always[other])
        ]
