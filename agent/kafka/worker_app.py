"""The Faust app of a worker, assembled from its settings, processors and background jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import faust
from faust.types import TP, ConsumerT, ProducerT

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.kafka.connection import FAUST_LOG, faust_options
from ragmeter.kafka.consumer import CommittedConsumer, follow_assigned_share
from ragmeter.kafka.control_topic import ControlPublisher, ControlRecords, follow_control_topic
from ragmeter.kafka.jobs import PROBE_KEY, EvidenceFetcher, Job, ProbeJob, TraceTopicReader
from ragmeter.kafka.processors.acknowledged import AckedProcessor
from ragmeter.kafka.processors.aggregate import AggregateProcessor
from ragmeter.kafka.processors.delivery import (
    DeadLetterTopic,
    ProcessorContext,
    RawTopic,
    TracePreparer,
    deliver,
    partition_for_key,
    raw_topic,
)
from ragmeter.kafka.processors.durable import DurableProcessor
from ragmeter.kafka.processors.otlp import AssembleProcessor, make_otlp_processors
from ragmeter.kafka.processors.score import FeedbackProcessor, ScoreProcessor
from ragmeter.kafka.processors.slow_tiers import InlineTiers
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.tables import IdempotentProducer, SafeTableManager, StateTable
from ragmeter.store.rows import OutboxItem

log = logging.getLogger(__name__)

_HEARTBEATS = 6  # in a session: five may be lost
# All deadlines of what is under way fit into it: `ragmeter.kafka.processors.slow_tiers`.
_REBALANCE_SECONDS = 60.0
_SEND_SECONDS = 60.0  # a send that takes longer ends the worker; Faust's 1,200 would hide an outage
# Sends wait for others, by partition: a request for each record took twice its scoring, and each
# request wakes the consumer, too.
_LINGER_SECONDS = 0.05
BATCH_BYTES = 2**18  # of one partition in a request; well below the megabyte that brokers take
_ENVELOPE = 64 * 1024  # headers and batch around the largest trace, which a dead letter repeats


class WorkerApp(faust.App):
    """Tells the processors which partitions are owned, and keeps the first fatal error.

    `jobs` run beside the processors. `ready` means that the partitions of this generation are
    loaded. `assemble` and `feedback` are None where the settings have no OTLP or feedback.
    """

    logger = FAUST_LOG
    score: ScoreProcessor
    aggregate: AggregateProcessor
    assemble: AssembleProcessor | None = None
    feedback: FeedbackProcessor | None = None
    sampling: SamplingSettings
    jobs: list[Job]
    fatal: str | None = None
    ready = False

    def _new_consumer(self) -> ConsumerT:
        transport: Any = self.transport
        transport.Consumer = CommittedConsumer
        return super()._new_consumer()

    def _new_producer(self) -> ProducerT:
        transport: Any = self.transport
        transport.Producer = IdempotentProducer
        return super()._new_producer()

    async def _on_partitions_revoked(self, revoked: set[TP]) -> None:
        self.ready = False
        for processor in self.acked_processors:
            processor.hold()
        await super()._on_partitions_revoked(revoked)  # waits for what is under way
        self.release()

    def release(self) -> None:
        """Give up all partitions: nothing of what is under way is acknowledged any more."""
        for acked in self.acked_processors:
            acked.release()
        for durable in self.durable_processors:
            durable.release()

    @property
    def acked_processors(self) -> list[AckedProcessor]:
        """The processors without a state."""
        return [self.score, self.feedback] if self.feedback else [self.score]

    @property
    def durable_processors(self) -> list[DurableProcessor[Any]]:
        """The processors with a state."""
        return [self.aggregate, self.assemble] if self.assemble else [self.aggregate]

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        """Load the states of the assigned partitions."""
        for processor in self.durable_processors:
            processor.take_over(generation, assigned)

    def start_owners(self, generation: int) -> None:
        """Start the loaded partitions."""
        for processor in self.durable_processors:
            processor.start_owners(generation)
        self.ready = True

    def resample(self, settings: SamplingSettings) -> None:
        """Apply other settings of what is `low` and `rare` to all states from now on."""
        with self.aggregate.lock:
            self.sampling = settings
            for owner in self.aggregate.owners.values():
                owner.state.aggregator.resample(settings)

    async def fail(self, error: BaseException) -> None:
        """End the worker; nothing is acknowledged any more."""
        if self.fatal is None:
            self.fatal = f"the worker stopped: {error!r}"
            log.error("%s", self.fatal, exc_info=error)


def make_app(
    settings: Settings,
    rules: Sequence[AlertRule],
    preparer: TracePreparer,
    tiers: InlineTiers,
    counters: Counters,
    datadir: Path,
    *,
    notify: Callable[[Alert, float], Sequence[OutboxItem]],
    announced: Callable[[], None],
) -> WorkerApp:
    """Make the app, in the event loop that it runs in; `datadir` is an empty folder.

    `notify` makes the notifications of an alert that has moved, `announced` is called when they are
    durable. Raises as `faust_options` does.
    """
    kafka, topics = settings.kafka, settings.kafka.topics
    app = _bare_app(settings, datadir)
    app.sampling = settings.sampling
    dead = DeadLetterTopic(raw_topic(app, topics.dead), preparer)
    context = ProcessorContext(settings, dead, counters, app.fail)
    scores, control = raw_topic(app, topics.scores), raw_topic(app, topics.control)
    records = ControlRecords(kafka.partitions)
    publisher = ControlPublisher(records, lambda key, value: deliver(control, key, value))
    expected = list(tiers.scorer.pairs)

    def build() -> PartitionState:
        state = PartitionState(
            settings,
            rules,
            expected,
            width=2 * kafka.in_flight,
            dedupe=kafka.dedupe_hours * 3600,
            clock=time.time,
            monotonic=time.monotonic,
            notify=notify,
        )
        state.aggregator.resample(app.sampling)
        return state

    app.aggregate = AggregateProcessor(
        context,
        app,
        StateTable.add_to(app, "state", kafka.partitions),
        topics.scores,
        build,
        announced=announced,
        learned=publisher.publish,
    )
    otlp = None
    if kafka.traces_encoding != "native":
        otlp, app.assemble = make_otlp_processors(context, app, preparer.redactor)
        app.assemble.lock = app.aggregate.lock  # readers hold one lock for all
    if settings.consistency.embeddings.base_url is not None:
        log.warning("on Kafka answers are not embedded: consistency.embeddings is not used")
    app.score = ScoreProcessor(context, scores, preparer, tiers, otlp)
    if settings.feedback.traces:
        app.feedback = FeedbackProcessor(context, scores)
        app.agent(raw_topic(app, topics.feedback), name="feedback")(app.feedback.agent)
    app.agent(raw_topic(app, topics.traces), name="score")(app.score.agent)
    app.agent(scores, name="aggregate")(app.aggregate.agent)

    reader = TraceTopicReader(kafka, topics.traces)
    app.jobs = [
        publisher.run,
        lambda: follow_control_topic(kafka, records, tiers.strata.apply_control),
        EvidenceFetcher(settings, app.aggregate, preparer, reader).run,
        lambda: follow_assigned_share(app, topics.traces, tiers.set_share),
    ]
    if tiers.instruments.probes is not None:
        home = partition_for_key(PROBE_KEY, kafka.partitions)
        probes = ProbeJob(
            tiers.instruments.probes,
            app.aggregate,
            tiers,
            lambda data: deliver(scores, PROBE_KEY, data, partition=home),
            home,
            clock=time.time,
        )
        app.jobs.append(probes.run)
    return app


def _bare_app(settings: Settings, datadir: Path) -> WorkerApp:
    kafka = settings.kafka
    largest = settings.limits.trace_bytes + _ENVELOPE
    return WorkerApp(
        kafka.group,
        **faust_options(kafka),
        loop=asyncio.get_running_loop(),
        datadir=datadir,  # Faust makes it, though tables are in memory
        store="memory://",
        TableManager=SafeTableManager,
        Topic=RawTopic,
        # topics are made by `ragmeter kafka init`, with the right partitions and retention
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=kafka.partitions,
        table_standby_replicas=0,  # a standby in memory reads from the beginning all the same
        # begun work is finished before a rebalance: without it Faust acknowledges what it cuts
        stream_wait_empty=True,
        # queued messages are delivered again after each rebalance
        stream_buffer_maxsize=256,
        broker_max_poll_records=500,
        broker_commit_interval=1.0,
        broker_session_timeout=kafka.session_seconds,
        broker_heartbeat_interval=kafka.session_seconds / _HEARTBEATS,
        broker_rebalance_timeout=_REBALANCE_SECONDS,
        consumer_auto_offset_reset="earliest",
        producer_request_timeout=_SEND_SECONDS,
        producer_linger=_LINGER_SECONDS,
        producer_max_batch_size=BATCH_BYTES,
        producer_max_request_size=largest,
        consumer_max_fetch_size=largest,
        web_enabled=False,  # ours is served instead; Faust's shows tables to anybody
    )
