"""A worker: its two consumer groups, processors and background jobs, made from its settings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from aiokafka import TopicPartition

from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.process import Job
from ragmeter.ingest.live_inspection import LiveInspection
from ragmeter.kafka.control_topic import ControlListener, ControlRecords
from ragmeter.kafka.evidence_fetcher import EvidenceFetcher, TraceTopicReader
from ragmeter.kafka.lag import follow_lag
from ragmeter.kafka.owners import PartitionOwner
from ragmeter.kafka.probe_job import PROBE_KEY, ProbeJob
from ragmeter.kafka.processors.aggregate import AggregateOwner, StateParts
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer, partition_for_key
from ragmeter.kafka.processors.otlp import (
    AssembleOwner,
    OtlpSplitter,
)
from ragmeter.kafka.processors.score import MessageProcessor, ScoreOwner
from ragmeter.kafka.score_group import ScoreGroup
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state_group import StateGroup
from ragmeter.parts.collection import PartKinds, document_topics
from ragmeter.scoring.inline_tiers import InlineTiers

log = logging.getLogger(__name__)


class WorkerApp:
    """The groups of a worker, what it shares with its exporters, and the first fatal error."""

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        preparer: TracePreparer,
        tiers: InlineTiers,
        counters: Counters,
        datadir: Path,
        outputs: AgentOutputs,
        parts: PartKinds = (),
    ) -> None:
        kafka = settings.kafka
        topics = settings.kafka.topics
        self.part_kinds = parts
        self.fatal: str | None = None
        self._settings = settings
        self._tiers = tiers
        self._preparer = preparer
        self.inspection = LiveInspection(preparer.content)
        dead = DeadLetterTopic(topics.dead, preparer, counters)
        control = ControlListener(
            kafka, ControlRecords(kafka.partitions), tiers.apply_control, datadir
        )
        self._parts = StateParts(
            settings=settings,
            rules=rules,
            expected=list(tiers.scorer.pairs),
            dead=dead,
            redactor=preparer.redactor,
            outputs=outputs,
            sampling=settings.sampling,
            inspection=self.inspection,
            kinds=parts,
        )
        otlp = kafka.traces_encoding != "native"
        splitter = OtlpSplitter(settings, preparer.redactor, counters) if otlp else None
        processor = MessageProcessor(
            settings=settings,
            dead=dead,
            counters=counters,
            preparer=preparer,
            tiers=tiers,
            otlp=splitter,
            outputs=outputs,
            parts=parts,
        )
        counted = [topics.scores, *([topics.spans] if otlp else [])]
        self.state = StateGroup(settings, counted, self._state_owner, counters, self.fail)
        owner = partial(ScoreOwner, processor)
        read = [topics.traces, *document_topics(parts, settings)]
        self.score = ScoreGroup(settings, read, owner, counters, self.fail)
        reader = TraceTopicReader(kafka, topics.traces)
        self.jobs: list[Job] = [
            self.score.run,
            self.state.run,
            control.run,
            EvidenceFetcher(settings, self.state, preparer, reader).run,
            lambda: follow_lag(self._answered, self.score, self.state),
        ]
        if tiers.judges.probes is not None:
            home = partition_for_key(PROBE_KEY, kafka.partitions)
            probes = ProbeJob(tiers.judges.probes, self.state, tiers, home, clock=time.time)
            self.jobs.append(probes.run)

    def _state_owner(self, group: StateGroup, tp: TopicPartition) -> PartitionOwner:
        spans = tp.topic == self._settings.kafka.topics.spans
        return (AssembleOwner if spans else AggregateOwner)(self._parts, group, tp)

    async def drain(self) -> None:
        """Commit what was begun."""
        await asyncio.gather(self.score.drain(), self.state.drain())

    @property
    def ready(self) -> bool:
        """Whether both groups have dealt their partitions and all owners work."""
        return self.state.ready and self.score.ready

    @property
    def silence(self) -> float:
        """Seconds since the brokers last answered."""
        return time.monotonic() - max(self.score.answered_at, self.state.answered_at)

    def _answered(self) -> None:
        self.score.answered_at = time.monotonic()
        self._tiers.set_share(self.score.share(self._settings.kafka.topics.traces))

    def marks(self) -> dict[object, object]:
        """Return a mark of each partition that has work, for `ragmeter.core.process.Watchdog`."""
        groups = (self.state, self.score)
        return {tp: owner.mark for group in groups for tp, owner in list(group.owners.items())}

    def gauges(self) -> list[GaugeSample]:
        """Return how far this worker is behind."""
        return [*self.score.gauges(), *self.state.gauges()]

    def describe(self) -> str:
        """Return the state of the owners, for the log of a worker that stalls."""
        return ", ".join(f"{tp.topic}/{tp.partition}: {mark}" for tp, mark in self.marks().items())  # type: ignore[attr-defined]

    def resample(self, settings: SamplingSettings) -> None:
        """Draw by other settings, and have all states follow them, from now on."""
        self._tiers.resample(settings)
        with self.state.lock:
            self._parts.sampling = settings
            for state in self.state.states(PartitionState).values():
                state.resample(settings)

    def redact(self, settings: PrivacySettings) -> None:
        """Apply other rules of redaction from the next trace on."""
        self._preparer.redactor.update(settings)

    async def fail(self, error: BaseException) -> None:
        """End the worker; nothing is committed any more."""
        if self.fatal is None:
            self.fatal = f"the worker stopped: {error!r}"
            log.error("%s", self.fatal, exc_info=error)
