"""A chaos run of workers on Kafka, from start to end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.kafka.operator.administration import PartitionLag, provision, read_lag
from ragmeter.kafka.operator.clients import guarded

from tests.chaos.faults import missed
from tests.chaos.kafka.faults import Fault, plan
from tests.chaos.kafka.outage import Watch, watched
from tests.chaos.kafka.plan import Plan
from tests.chaos.kafka.pool import Pool
from tests.chaos.kafka.producing import Producing
from tests.chaos.kafka.traffic import FAILURE_KINDS, SETTINGS, rules_text, sendings
from tests.chaos.kafka.truth import Log, Oracle, alarm_differences, differences, embedded, read_log
from tests.chaos.kafka.webhook import Received, receiver
from tests.chaos.run import SAY_SECONDS, START_SECONDS, ChaosRun, Report, wait_until
from tests.kafka.cluster import Worker
from tests.kafka_server import KafkaServer, kafka_server

__all__ = ["KafkaRun"]

GROUP = "chaos"
LEAST_GAP = 2.0  # seconds between two faults; what they do lasts longer, so they overlap
EVALUATION_SECONDS = 5.0  # of event time
QUIET_SECONDS = 7.0
"""What would be counted twice comes in this time; and event time moves on by one evaluation, for
the last one while traces came may have been before the last trace."""


class KafkaRun(ChaosRun):
    """Of a `Plan`: workers, producers and brokers."""

    plan: Plan

    def __init__(self, plan_: Plan, folder: Path, tell: Callable[[str], None]) -> None:
        super().__init__(plan_, folder, tell)
        self.waiting: list[float] = []  # at each kill, the share of the traces that is not counted

    def tree(self, server: KafkaServer, url: str) -> dict[str, Any]:
        """The settings of the workers, but for their ports."""
        rules = self.folder / "rules.yaml"
        rules.write_text(rules_text())
        kafka: dict[str, Any] = {
            "bootstrap_servers": server.bootstrap.split(","),
            "group": GROUP,
            "partitions": self.plan.partitions,
            "in_flight": self.plan.in_flight,
        }
        if self.plan.nodes > 1:
            kafka["replication"] = self.plan.nodes
        if "session_seconds" in KafkaSettings.model_fields:
            kafka["session_seconds"] = self.plan.session
        alerts = {
            "rules": str(rules),
            "webhook_url": url,
            "evaluation_seconds": EVALUATION_SECONDS,
        }
        return {
            # which traces it scores hangs on the time that the machine has
            "models": {"cpu_share": 0},
            **SETTINGS,
            "alerts": alerts,
            "kafka": kafka,
        }

    def make_topics(self, settings: Settings) -> None:
        with guarded(settings.kafka):
            provision(settings, PARTS)
        # small segments, so that the cleaner is at work on the state while it is written and read
        small = {"segment.bytes": str(2**20), "min.cleanable.dirty.ratio": "0.05"}
        resource = ConfigResource("topic", f"{GROUP}-aggregates", small)
        with closing(
            KafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap_servers)
        ) as client:
            # unchecked: of several nodes the one that is asked may not know the new topic yet
            client.alter_configs([resource], raise_on_unknown=False)

    def go(self) -> Report:
        todo = self.plan
        with (
            ProcessPoolExecutor(1, initializer=os.nice, initargs=(5,)) as aside,
            receiver() as received,
            kafka_server(self.folder / "kafka", nodes=todo.nodes) as server,
        ):
            tree = self.tree(server, received.url)
            settings = AgentSettings.model_validate(tree)
            oracle = aside.submit(embedded, todo.traces, todo.seed, tree)
            self.make_topics(settings)
            pool = Pool(lambda name: self.worker(server, name, tree), server, self.say)
            try:
                self._go(server, settings, pool, received, oracle)
            finally:
                for worker in pool.running().values():
                    worker.kill()
        return self.report

    def worker(self, server: KafkaServer, name: str, tree: dict[str, Any]) -> Worker:
        program = ["-m", "ragmeter"]
        if self.plan.mutant:
            program = ["-m", "tests.chaos.kafka.mutants", self.plan.mutant]
        return Worker(server, self.folder, name, settings=tree, program=program, **tree["kafka"])

    def _go(
        self,
        server: KafkaServer,
        settings: Settings,
        pool: Pool,
        received: Received,
        oracle: Future[Oracle],
    ) -> None:
        todo, report = self.plan, self.report
        faults = plan(
            todo.seed,
            kills=todo.kills,
            terms=todo.terms,
            freezes=todo.freezes,
            joins=todo.joins,
            broker_restarts=todo.broker_restarts,
            session=todo.session,
            lose_node=todo.lose_node,
            outage=todo.outage,
        )
        pool.start(todo.workers)
        self._wait(
            lambda: all(worker.ready for worker in pool.workers.values()), "ready", START_SECONDS
        )
        self.say(f"{todo.workers} workers are ready")
        producing = Producing(
            server.bootstrap,
            sendings(todo.traces, todo.seed),
            todo.rate,
            int(todo.backlog * todo.traces),
            todo.partitions,
            self.say,
        )
        begun = time.monotonic()
        producing.start()
        with watched(pool, server) if todo.outage else nullcontext(Watch()) as watch:
            self._storm(faults, pool, producing)
        report.differences += missed(faults, pool.done)
        if producing.error is not None:
            report.differences.append(f"the producer failed: {producing.error!r}")
            return
        self.say(f"all is produced ({producing.again} sends were made again)")
        truth = oracle.result()
        self._drain(pool, len(truth.ids))
        self._until_read(settings, pool)
        report.seconds = time.monotonic() - begun
        time.sleep(QUIET_SECONDS)
        log = read_log(server.bootstrap)
        exports = {name: worker.metrics() for name, worker in pool.running().items()}
        report.differences += differences(exports, truth, log)
        self._facts(pool, log, received)
        if todo.outage:
            report.facts += watch.facts()
            report.differences += [*watch.wrong(len(pool.workers)), *pool.own_exits]
        self._fresh(pool, truth, log)
        # When an incident opens, gets worse and is over hangs on the order of the partitions and on
        # which traces were the last.
        report.differences += alarm_differences(received, truth, once=FAILURE_KINDS)

    def _storm(self, faults: list[Fault], pool: Pool, producing: Producing) -> None:
        acted = looked = reported = moved = time.monotonic()
        due = list(faults)
        most = 0.0
        while due or producing.is_alive() or not pool.settled:
            now = time.monotonic()
            if now - looked >= self.plan.look:
                counted, both = pool.look()
                looked = time.monotonic()
                self.report.differences += [f"at the same time: {line}" for line in both]
                if counted > most:
                    producing.counted = most = counted
                    moved = now
                if now - reported > SAY_SECONDS:
                    reported = now
                    self.say(f"{producing.sent} are sent, {counted:.0f} counted")
                if due and now - moved > self.plan.patience:
                    self.report.differences.append(
                        f"nothing has moved for {self.plan.patience:.0f} s at {most:.0f}"
                    )
                    producing.counted = math.inf
                    due = []
            # where all stands still for a while, the next fault must come all the same
            late = now - max(moved, acted) > self.plan.patience / 3
            if due and now - acted >= LEAST_GAP and (late or most >= due[0].at * self.plan.traces):
                if due[0].kind == "kill":
                    producing.counted = most = max(most, pool.look()[0])
                    self.waiting.append((producing.sent - most) / self.plan.traces)
                pool.act(due.pop(0))
                acted = time.monotonic()
            pool.tend()
            time.sleep(0.1)

    def _drain(self, pool: Pool, expected: int) -> None:
        """Until all is counted while every worker is ready, so that no rebalance is still to come
        in which a partition is nobody's; or until nothing has moved for long."""
        last = -1.0
        moved = time.monotonic()
        reported = time.monotonic()
        while time.monotonic() - moved < self.plan.patience:
            pool.tend()
            calm = pool.settled and len(pool.ready()) == len(pool.workers)
            counted = sum(worker.traces() for worker in pool.running().values())
            if counted >= expected and calm:
                break
            if counted != last:
                last = counted
                moved = time.monotonic()
            if time.monotonic() - reported > 20:
                reported = time.monotonic()
                self.say(f"{counted:.0f} of {expected} are counted")
            time.sleep(1)
        else:
            self.report.differences.append(
                f"nothing has moved for {self.plan.patience:.0f} s at {last:.0f} of {expected}"
            )
        self.report.counted = sum(worker.traces() for worker in pool.running().values())

    def _until_read(self, settings: Settings, pool: Pool) -> None:
        """Repetitions at the end, too."""

        def behind() -> list[PartitionLag]:
            with guarded(settings.kafka):
                return [row for row in read_lag(settings, PARTS) if row.lag]

        end = time.monotonic() + 60
        while rows := behind():
            pool.tend()
            if time.monotonic() > end:
                self.report.differences += [
                    f"{row.topic}/{row.partition} is not read after a minute: {row.to_dict()}"
                    for row in rows
                ]
                return
            time.sleep(1)

    def _facts(
        self,
        pool: Pool,
        log: Log,
        received: Received,
    ) -> None:
        todo, add = self.plan, self.report.facts.append
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(pool.done.items()))
        add(f"seed {todo.seed}: {done}; {len(pool.own_exits)} workers ended by themselves")
        for line in pool.own_exits + pool.bad_stops:
            add(f"  {line}")
        many = sum(share >= 0.5 for share in self.waiting)
        add(f"{many} of {len(self.waiting)} kills while half of the load or more was waiting")
        add(f"{self.report.counted:.0f} traces counted, {self.report.seconds:.0f} s")
        add(f"{log.duplicates} duplicates in the log")
        add(f"{sum(log.labels.values())} labels, {len(log.labels)} different ones")
        add(f"{len(log.poison)} poison, {len(log.dead) - len(log.poison)} dead letters repeated")
        add(f"{len(received.ids)} notifications, {received.repeated} delivered again")

    def _fresh(self, pool: Pool, oracle: Oracle, log: Log) -> None:
        """All stop; a worker that has seen nothing finds the same in the changelog."""
        for name, worker in pool.running().items():
            status = worker.stop(60)
            if status:
                self.report.differences.append(f"{name} ended with {status} after SIGTERM")
        pool.workers = {}
        pool.start(1)
        (worker,) = pool.workers.values()
        begun = time.monotonic()
        self._wait(lambda: worker.ready, "a fresh worker ready", START_SECONDS)
        self.say(f"a fresh worker was ready after {time.monotonic() - begun:.1f} s")
        found = differences({"fresh": worker.metrics()}, oracle, log)
        self.report.differences += [f"fresh worker: {line}" for line in found]
        worker.stop(60)

    def _wait(self, what: Callable[[], object], name: str, seconds: float) -> None:
        if not wait_until(what, seconds):
            raise TimeoutError(f"not {name} within {seconds:.0f} s")
