"""What a worker has for OTLP: the way in, and the stage that puts traces together."""

from __future__ import annotations

import time
from typing import Any

import faust

from agent.config import Settings
from agent.counters import Counters
from agent.kafka.client.state_table import StateTable
from agent.kafka.messages.encodings import HEADER, Encoding
from agent.kafka.messages.span_records import RECORD_BYTES
from agent.kafka.stages.assemble_stage import AssembleStage
from agent.kafka.stages.otlp_in import OtlpIn
from agent.kafka.stages.preparing import Preparing
from agent.kafka.stages.sending import DeadTopic, deliver, raw_topic
from agent.kafka.state.assembly_state import AssemblyState
from agent.kafka.state.span_rows import share_of

__all__ = ["otlp_stages"]


def otlp_stages(
    app: faust.App,
    settings: Settings,
    preparing: Preparing,
    dead: DeadTopic,
    counters: Counters,
    failed: Any,
) -> tuple[OtlpIn, AssembleStage]:
    """The agent of the second is registered with `app`."""
    kafka, limit = settings.kafka, settings.limits.trace_bytes
    spans, traces = raw_topic(app, kafka.topics.spans), raw_topic(app, kafka.topics.traces)
    share = share_of(settings.otlp, kafka.partitions)

    async def partitions() -> int:
        producer: Any = await app.maybe_start_producer()
        return len(await producer._producer.partitions_for(kafka.topics.spans))

    def build() -> AssemblyState:
        return AssemblyState(
            share,
            width=2 * kafka.in_flight,
            row_bytes=min(RECORD_BYTES, limit),
            clock=time.time,
            monotonic=time.monotonic,
        )

    # by the header it is known whatever `kafka.traces_encoding` says of the messages of others
    native = {HEADER: Encoding.NATIVE.encode()}
    stage = AssembleStage(
        app,
        StateTable.add_to(app, "spans", kafka.partitions),
        kafka.topics.spans,
        dead,
        counters,
        build=build,
        failed=failed,
        send=lambda key, body: deliver(traces, key, body, native),
        otlp=settings.otlp,
        limit=limit,
    )
    app.agent(spans, name="assemble")(stage.agent)
    way_in = OtlpIn(
        partitions,
        lambda partition, data: deliver(spans, None, data, partition=partition),
        preparing.redactor,
        counters,
        limit=limit,
    )
    return way_in, stage
