"""Assemble the Faust app of a worker from its settings, processors and background jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import faust
from faust.types import TP, ConsumerT, ProducerT

from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.kafka.connection import faust_options
from ragmeter.kafka.consumer import CommittedConsumer, follow_assigned_share
from ragmeter.kafka.control_topic import ControlBoard, ControlPublisher, follow_control_topic
from ragmeter.kafka.jobs import (
    PROBE_KEY,
    EvidenceFetcher,
    Job,
    ProbeJob,
    TraceTopicReader,
    probe_partition,
)
from ragmeter.kafka.processors.acknowledged import AckedProcessor
from ragmeter.kafka.processors.aggregate import AggregateProcessor
from ragmeter.kafka.processors.delivery import (
    DeadLetterTopic,
    RawTopic,
    TracePreparer,
    deliver,
    raw_topic,
)
from ragmeter.kafka.processors.durable import DurableProcessor
from ragmeter.kafka.processors.otlp import AssembleProcessor, make_otlp_processors
from ragmeter.kafka.processors.score import FeedbackProcessor, ScoreProcessor
from ragmeter.kafka.processors.slow_tiers import InlineTiers
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.tables import IdempotentProducer, SafeTableManager, StateTable
from ragmeter.store.rows import OutboxItem

log = logging.getLogger("ragmeter.kafka")

_HEARTBEATS = 6  # in a session: five may be lost
_REBALANCE_SECONDS = (
    60.0  # all deadlines of what is under way fit into it: ragmeter.kafka.processors.slow_tiers
)
_SEND_SECONDS = 60.0  # a send that takes longer ends the worker; Faust's 1,200 would hide an outage
# Sends wait for others, by partition: a request for each record took twice its scoring, and each
# request wakes the consumer, too.
_LINGER_SECONDS = 0.05
BATCH_BYTES = 2**18  # of one partition in a request; well below the megabyte that brokers take
_ENVELOPE = 64 * 1024  # headers and batch around the largest trace, which a dead letter repeats


class WorkerApp(faust.App):
    """Tells the stages what is owned; remembers the first thing that ended it."""

    score: ScoreProcessor
    aggregate: AggregateProcessor
    assemble: AssembleProcessor | None = None
    """Where traces may come as OTLP."""
    feedback: FeedbackProcessor | None = None
    """Where labels may come."""
    sampling: SamplingSettings
    jobs: Sequence[Job] = ()
    """What is to run beside the stages."""
    fatal: str | None = None
    ready = False
    """Whether the partitions of this generation are loaded and read."""

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
        for stage in self.acked_processors:
            stage.hold()
        await super()._on_partitions_revoked(revoked)  # waits for what is under way
        self.release()

    def release(self) -> None:
        """Nothing of what is under way is acknowledged any more."""
        for acked in self.acked_processors:
            acked.release()
        for stage in self.durable_processors:
            stage.release()

    @property
    def acked_processors(self) -> list[AckedProcessor]:
        """Those without a state."""
        return [self.score, self.feedback] if self.feedback else [self.score]

    @property
    def durable_processors(self) -> list[DurableProcessor[Any]]:
        """Those with a state."""
        return [self.aggregate, self.assemble] if self.assemble else [self.aggregate]

    def take_over(self, generation: int, assigned: set[TP]) -> None:
        for stage in self.durable_processors:
            stage.take_over(generation, assigned)

    def start_owners(self, generation: int) -> None:
        for stage in self.durable_processors:
            stage.start_owners(generation)
        self.ready = True

    def resample(self, settings: SamplingSettings) -> None:
        """Other settings of what is `low` and `rare`, for all states from now on."""
        with self.aggregate.lock:
            self.sampling = settings
            for owner in self.aggregate.owners.values():
                owner.state.aggregator.resample(settings)

    async def fail(self, error: BaseException) -> None:
        """Nothing is acknowledged any more; the worker ends."""
        if self.fatal is None:
            self.fatal = f"the worker stopped: {error!r}"
            log.error("%s", self.fatal, exc_info=error)


def make_app(
    settings: Settings,
    rules: Sequence[AlertRule],
    preparing: TracePreparer,
    tiers: InlineTiers,
    counters: Counters,
    datadir: Path,
    *,
    notify: Callable[[Alert, float], Sequence[OutboxItem]],
    announced: Callable[[], None],
) -> WorkerApp:
    """To be called in the loop that it runs in. Raises `ragmeter.kafka.connection.SecurityError`."""
    kafka = settings.kafka
    app = WorkerApp(
        kafka.group,
        **faust_options(kafka),
        loop=asyncio.get_running_loop(),
        datadir=datadir,  # Faust makes it, though tables are in memory
        store="memory://",
        TableManager=SafeTableManager,
        Topic=RawTopic,
        # topics are made by `ragmeter kafka`, with the right partitions and retention
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=kafka.partitions,
        table_standby_replicas=0,  # a standby in memory reads from the beginning all the same
        # what was begun is finished before a rebalance: without it Faust acknowledges what it cuts
        stream_wait_empty=True,
        # what is queued is delivered again after each rebalance
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
        producer_max_request_size=settings.limits.trace_bytes + _ENVELOPE,
        consumer_max_fetch_size=settings.limits.trace_bytes + _ENVELOPE,
        web_enabled=False,  # ours is served instead; Faust's shows tables to anybody
    )
    topics = kafka.topics
    dead = DeadLetterTopic(raw_topic(app, topics.dead), preparing)
    scores = raw_topic(app, topics.scores)
    expected = list(tiers.scorer.pairs)
    board, control = ControlBoard(kafka.partitions), raw_topic(app, topics.control)
    voice = ControlPublisher(board, lambda key, value: deliver(control, key, value))
    app.jobs = [voice.run, lambda: follow_control_topic(kafka, board, tiers.strata.apply_control)]

    app.sampling = settings.sampling

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

    otlp = None
    if kafka.traces_encoding != "native":
        otlp, app.assemble = make_otlp_processors(
            app, settings, preparing, dead, counters, app.fail
        )
    if settings.consistency.embeddings.base_url is not None:
        log.warning("on Kafka answers are not embedded: consistency.embeddings is not used")
    app.score = ScoreProcessor(
        settings.limits,
        preparing,
        otlp,
        tiers,
        scores,
        dead,
        counters,
        encoding=kafka.traces_encoding,
        epoch=kafka.traces_epoch,
        in_flight=kafka.in_flight,
        failed=app.fail,
        wordings=WordingBuilder(settings.consistency, settings.privacy),
        labelled=settings.feedback.traces > 0,
    )
    if settings.feedback.traces:
        app.feedback = FeedbackProcessor(settings, scores, dead, counters, failed=app.fail)
        app.agent(raw_topic(app, topics.feedback), name="feedback")(app.feedback.agent)
    app.aggregate = AggregateProcessor(
        app,
        StateTable.add_to(app, "state", kafka.partitions),
        topics.scores,
        dead,
        counters,
        build=build,
        failed=app.fail,
        announced=announced,
        learned=voice.publish,
    )
    if app.assemble is not None:  # whoever reads holds one lock for all
        app.assemble.lock = app.aggregate.lock
    fetcher = EvidenceFetcher(
        settings, app.aggregate, preparing, TraceTopicReader(kafka, topics.traces)
    )
    if tiers.instruments.probes is not None:
        home = probe_partition(kafka.partitions)
        probing = ProbeJob(
            tiers.instruments.probes,
            app.aggregate,
            tiers,
            lambda data: deliver(scores, PROBE_KEY, data, partition=home),
            home,
            clock=time.time,
        )
        app.jobs = [*app.jobs, probing.run]
    app.jobs = [
        *app.jobs,
        fetcher.run,
        lambda: follow_assigned_share(app, topics.traces, tiers.set_share),
    ]
    app.agent(raw_topic(app, topics.traces), name="score")(app.score.agent)
    app.agent(scores, name="aggregate")(app.aggregate.agent)
    return app
