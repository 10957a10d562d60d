"""A chaos run of the embedded agent, from start to end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragmeter.config.inputs import OtlpSettings

from tests.chaos.embedded.clock import Clock
from tests.chaos.embedded.disk import Disk, disk
from tests.chaos.embedded.faults import JUDGE, JUMP, Fault, Kind, plan, suffered
from tests.chaos.embedded.judge import Judge, judge
from tests.chaos.embedded.plan import Plan
from tests.chaos.embedded.running import Agent
from tests.chaos.embedded.sending import (
    PARTS,
    FileWriter,
    HttpSender,
    OtlpSender,
    Overload,
    Sender,
    Taken,
)
from tests.chaos.embedded.traffic import lines_of
from tests.chaos.embedded.truth import JUDGED, Sent, differences, intervals
from tests.chaos.run import SAY_SECONDS, START_SECONDS, ChaosRun, Report, wait_until

__all__ = ["EmbeddedRun"]

SHARES = {"http": 0.6, "otlp": 0.2, "file": 0.2}
SHEDS = 3  # overloads by which some of what is drawn was shed: in the run of SEED=2 8 shed 248
SLOWEST = 5.0  # times the plan's seconds, and nothing waits any more
TRUTH_SECONDS = 900.0

JUDGE_SETTINGS: dict[str, Any] = {
    "model": "stub-1",
    "metrics": ["relevance", "answered"],
    "timeout_seconds": 5,
    "concurrency": 8,
    # found out by trying, it could be found out while the judge talks nonsense: that would be
    # another series
    "structured": "schema",
    # frozen questions of our own are no traffic
    "probes": {"enabled": False},
}
OTLP_SETTINGS: dict[str, Any] = {
    "grace_seconds": 1,
    # a sender may wait for long, and a start under a clock that is an hour ahead makes all older
    "idle_seconds": 4 * JUMP,
    "max_age_seconds": 4 * JUMP,
}


def tree(folder: Path, judged_by: str, **changes: Any) -> dict[str, Any]:
    """Settings of an agent whose state is in `folder`."""
    return {
        "windows": ["5m", "24h"],
        "segments": ["model"],
        "state": {"path": str(folder / "s.sqlite")},
        "otlp": OTLP_SETTINGS,
        "slos": [
            {"name": "availability", "bad": "failed"},
            {
                "name": JUDGED,
                "bad": "low",
                "metric": "relevance",
                "scorer": "umbrela",
                "threshold": 10,
            },
        ],
        "judge": {**JUDGE_SETTINGS, "base_url": judged_by},
        **changes,
    }


class EmbeddedRun(ChaosRun):
    """Of a `Plan`: one agent, its judge, disk and clock, and those who send to it."""

    plan: Plan

    def __init__(self, plan_: Plan, folder: Path, tell: Callable[[str], None]) -> None:
        super().__init__(plan_, folder, tell)
        self.taken = Taken()
        self.senders: list[Sender] = []
        self.crowd: list[Overload] = []
        self.done: Counter[str] = Counter()
        self.bad: list[Kind] = []  # of the judge, now
        self.lies: dict[str, float] = {}

    def go(self) -> Report:
        with judge() as asked, disk(self.folder / "disk") as storage:
            clock = Clock(self.folder / "clock")
            file = self.folder / "traffic.jsonl"
            todo, rate = self.plan, self.plan.rate
            writer = FileWriter("file", todo.seed, SHARES["file"] * rate, file, self.taken)
            settings = tree(
                storage.folder,
                asked.base_url,
                # small, so that an overload fills them
                limits={"queue": 1000, "drawn": 100},
                sampling={"judge": todo.judged},
            )
            settings["judge"]["cache"] = {"entries": 0}  # every trace asks
            agent = Agent(
                self.folder / "agent", settings, [file], self.say, disk=storage, clock=clock
            )
            try:
                agent.start()
                self._wait(lambda: agent.serving, agent, "serving", START_SECONDS)
                url = f"http://127.0.0.1:{agent.port}"
                self.senders = [
                    HttpSender("http", todo.seed, SHARES["http"] * rate, url, self.taken),
                    OtlpSender("otlp", todo.seed, SHARES["otlp"] * rate, url, self.taken),
                    writer,
                ]
                for sender in self.senders:
                    sender.start()
                self._storm(agent, asked, storage, clock, url)
                self._heal(agent, asked, storage, clock)
                found = agent.metrics()
                fresh = self._fresh(agent)
            finally:
                agent.close()
            self._compare(agent, storage, asked, found, fresh)
        return self.report

    # Faults -------------------------------------------------------------------------------------

    def _storm(self, agent: Agent, asked: Judge, storage: Disk, clock: Clock, url: str) -> None:
        due = plan(self.plan.seed, self.plan.seconds)
        under_way: list[tuple[float, Fault]] = []
        now = 0.0
        last = time.monotonic()
        reported, begun = last, last
        frozen = False
        while now < self.plan.seconds:
            passed = time.monotonic() - last
            last = time.monotonic()
            up = agent.up
            # a busy machine takes a minute for a start: the faults wait for an agent to meet
            starting = agent.running and not (up or storage.faulty or frozen)
            if not starting or last - begun > SLOWEST * self.plan.seconds:
                now += passed
            for end, fault in list(under_way):
                if now >= end:
                    under_way.remove((end, fault))
                    frozen = frozen and fault.kind != "freeze"
                    self._end(fault, agent, asked, storage, clock)
            ready = [one for one in due if now >= one.at and (up or not one.aimed)]
            for fault in ready[:1]:
                due.remove(fault)
                self._begin(fault, agent, asked, storage, clock, url)
                under_way.append((now + fault.lasts, fault))
                frozen = frozen or fault.kind == "freeze"
            agent.tend()
            if last - reported > SAY_SECONDS:
                reported = last
                self.say(f"{now:.0f} s of faults; taken: {dict(self.taken.counts)}")
            time.sleep(0.05)
        if due:
            self.report.facts.append(f"{len(due)} faults never found an agent that answers")
        for _, fault in under_way:
            self._end(fault, agent, asked, storage, clock)

    def _begin(
        self, fault: Fault, agent: Agent, asked: Judge, storage: Disk, clock: Clock, url: str
    ) -> None:
        self.say(f"{fault.kind} for {fault.lasts:.1f} s")
        self.done[fault.kind] += 1
        kind = fault.kind
        if kind == "kill":
            agent.kill(fault.lasts)
        elif kind == "term":
            self._stop(agent, storage, fault.lasts)
        elif kind == "freeze":
            agent.freeze()
        elif kind in JUDGE:
            self.bad.append(kind)
            asked.suffer(suffered(self.bad))
        elif kind == "disk-full":
            storage.fill()
            agent.limit()
        elif kind == "disk-error":
            storage.refusing = True
            agent.limit()
        elif kind == "clock":
            clock.jump(fault.size * JUMP)
        elif kind == "overload":
            rate = self.plan.rate * (self.plan.overload - 1) / PARTS
            first = self.done["overload"] * 10**7
            for part in range(PARTS):
                one = Overload(part, self.plan.seed, rate, url, self.taken, first + part * 10**6)
                self.crowd.append(one)
                one.start()

    def _end(self, fault: Fault, agent: Agent, asked: Judge, storage: Disk, clock: Clock) -> None:
        kind = fault.kind
        if kind == "freeze":
            agent.thaw()
        elif kind in JUDGE:
            self.bad.remove(kind)
            asked.suffer(suffered(self.bad))
        elif kind == "disk-full":
            storage.free()
            agent.limit()
        elif kind == "disk-error":
            storage.refusing = False
            agent.limit()
        elif kind == "clock":
            clock.jump(0.0)
        elif kind == "overload":
            for one in self.crowd:
                one.halt()

    def _stop(self, agent: Agent, storage: Disk, down: float) -> None:
        if not agent.running:
            return
        agent.thaw()  # what is stopped hears nothing
        bad = storage.faulty
        status = agent.stop(down)
        if status != 0 and not bad:
            self.report.differences.append(f"the agent ended with {status} after SIGTERM")

    # The end ------------------------------------------------------------------------------------

    def _heal(self, agent: Agent, asked: Judge, storage: Disk, clock: Clock) -> None:
        """All faults end, all senders come to their end, and the agent to the end of its work."""
        asked.suffer({})
        storage.free()
        storage.refusing = False
        clock.jump(0.0)
        agent.thaw()
        agent.limit()
        self.say("all faults are over")
        for sender in (*self.senders, *self.crowd):
            sender.halt()
        end = time.monotonic() + self.plan.patience
        while any(one.is_alive() for one in (*self.senders, *self.crowd)):
            agent.tend()
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        for sender in (*self.senders, *self.crowd):
            if not sender.stop(0.1):
                self.report.differences.append(f"{sender.name} could not send: {sender.error!r}")
        self.report.facts.append(f"at the end: {agent.unready() or 'ready'}")
        self._stop(agent, storage, 0.0)  # the file was read to where it ended at the last start
        agent.tend()
        self._idle(agent)

    def _idle(self, agent: Agent) -> None:
        self._wait(lambda: agent.serving, agent, "serving", self.plan.patience)
        self._wait(lambda: idle(agent.metrics()), agent, "idle", self.plan.patience)

    def _wait(self, what: Callable[[], object], agent: Agent, name: str, seconds: float) -> None:
        if not wait_until(what, seconds, agent.tend):
            left = {n: v for n, v in agent.metrics().items() if n.startswith(WAITING) and v}
            self.report.differences.append(
                f"the agent is not {name} within {seconds:.0f} s: {left} {agent.unready()}"
            )

    def _fresh(self, agent: Agent) -> dict[str, float]:
        """What a process that has seen nothing finds in the state."""
        status = agent.stop()
        if status != 0:
            self.report.differences.append(f"the agent ended with {status} at the end")
        agent.tend()
        self._idle(agent)
        return agent.metrics()

    def _compare(
        self,
        agent: Agent,
        storage: Disk,
        asked: Judge,
        found: dict[str, float],
        fresh: dict[str, float],
    ) -> None:
        report, taken = self.report, self.taken
        self.lies = asked.lies()  # before the undisturbed run asks as well
        self.say("the undisturbed run begins")
        lines = [*taken.lines, *lines_of(taken.bodies, OtlpSettings.model_validate(OTLP_SETTINGS))]
        truth = self._undisturbed(lines, asked)
        sent = Sent(
            {
                "http": taken.counts["http"] + taken.counts["overload"],
                "file": taken.counts["file"],
                "otlp": taken.counts["otlp"],
            },
            taken.poison,
            dead_of(storage.folder),
            self.lies,
        )
        report.differences += differences(found, truth, sent)
        report.differences += [
            f"after a restart: {line}" for line in differences(fresh, truth, sent)
        ]
        if agent.peak_mb > self.plan.memory_mb:
            report.differences.append(
                f"{agent.peak_mb:.0f} MB were resident, the limit is {self.plan.memory_mb}"
            )
        good = [status for status, bad in agent.own_exits if not bad]
        if good:
            report.differences.append(f"the agent ended by itself: {good}")
        self._facts(agent, storage, found, truth, sent)

    def _undisturbed(self, lines: list[bytes], asked: Judge) -> dict[str, float]:
        """The export of an agent that reads all that was taken from a file, and judges all of it,
        with nothing in its way."""
        folder = self.folder / "undisturbed"
        folder.mkdir()
        file = folder / "taken.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        settings = tree(folder, asked.base_url, sampling={"judge": 1.0})
        settings["judge"] |= {"timeout_seconds": 60}
        agent = Agent(folder, settings, [file], self.say)
        try:
            agent.start()
            end = time.monotonic() + TRUTH_SECONDS
            while not (agent.serving and idle(agent.metrics())):
                if time.monotonic() > end or not agent.running:
                    raise TimeoutError("the undisturbed run has not come to its end")
                time.sleep(0.5)
            return undisturbed(agent.metrics())
        finally:
            agent.close()

    def _facts(
        self,
        agent: Agent,
        storage: Disk,
        found: dict[str, float],
        truth: dict[str, float],
        sent: Sent,
    ) -> None:
        add = self.report.facts.append
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        add(f"seed {self.plan.seed}: {faults}; a disk of its own: {storage.own}")
        add(f"{agent.starts} starts, {len(agent.own_exits)} of them after {agent.own_exits}")
        add(f"{sent.total} traces accepted ({dict(self.taken.counts)}), {len(sent.poison)} poison")
        add(f"{agent.peak_mb:.0f} MB resident at most")
        for state in ("scored", "sampled_out", "unscored", "shed"):
            number = sum(
                value
                for name, value in found.items()
                if name.startswith('ragmeter_results_total{metric="relevance",scorer="umbrela"')
                and f'state="{state}"' in name
            )
            add(f"relevance by the judge, {state}: {number:.0f}")
            if state == "shed" and not number and self.done["overload"] >= SHEDS:
                self.report.differences.append(
                    f"{self.done['overload']} overloads and nothing was shed: they were none"
                )
        rows = intervals(found, truth, sent.lies)
        missed = sum(bool(row.beyond) for row in rows)
        add(f"{len(rows)} intervals of samples, {missed} of them miss the truth")
        share = ", ".join(f"{name} {part:.3f}" for name, part in sorted(sent.lies.items()))
        add(f"wrong answers of the judge, by service: {share}")
        (self.folder / "found.json").write_text(json.dumps(found, indent=0))
        (self.folder / "truth.json").write_text(json.dumps(truth, indent=0))


def undisturbed(found: dict[str, float]) -> dict[str, float]:
    """The same. Raises where the judge has failed of something: then nobody knows the truth."""
    failed = {
        name: value
        for name, value in found.items()
        if value and name.startswith("ragmeter_results_total") and 'reason="judge' in name
    }
    if failed:
        raise RuntimeError(f"the undisturbed run was disturbed: {failed}")
    return found


WAITING = (
    "ragmeter_queue_depth",
    "ragmeter_drawn_traces",
    "ragmeter_held_traces",
    "ragmeter_otlp_open_traces",
)


def idle(found: dict[str, float]) -> bool:
    """Whether an agent with this export has nothing left to do."""
    waiting = [value for name, value in found.items() if name.startswith(WAITING)]
    return bool(waiting) and not any(waiting)


def dead_of(folder: Path) -> list[int]:
    """Positions of the dead letters of the file."""
    path = folder / "s.sqlite.dead-letters.jsonl"
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            letter = json.loads(line)
        except ValueError:
            continue  # what a kill has torn is written again
        if str(letter["source"]).startswith("file"):
            found.append(letter["position"])
    return found
