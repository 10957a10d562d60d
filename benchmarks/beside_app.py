"""The application of `benchmarks.beside`: RAG requests with the spans of OpenInference.

As a process it reads a number from standard input, serves so many requests, and writes their
latencies and errors as a line of JSON; at the end of the input it shuts its exporter down and
writes how long that took. Without RATE (or 0) requests follow each other without a pause; with it
they come at random (Poisson), so many a second, each in a thread, and a latency counts from when
the request came.

    python -m benchmarks.beside_app none|noop|URL LOOPS WAIT RATE
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracerProvider, Tracer

__all__ = ["Noop", "main", "provider_for", "serve", "work"]

KIND = "openinference.span.kind"
WAIT = 0.005  # what a call of a model or an index would at least take
THREADS = 64
LOOPS = 20_000  # about a millisecond of Python, which holds the interpreter's lock

Block = list[tuple[float, bool]]


class Noop(SpanExporter):
    """Takes spans and does nothing: what is left is the cost of making them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def provider_for(exporter: SpanExporter) -> TracerProvider:
    """As `opentelemetry-instrument` sets it up: a batching processor, settings from OTEL_*."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def work(loops: int) -> None:
    total = 0
    for number in range(loops):
        total += number


def passage(number: int, rank: int) -> str:
    line = f"Doors open at nine and close at {number % 12} on day {rank}. "
    return line * (800 // len(line))


def serve(tracer: Tracer, number: int, loops: int = LOOPS, wait: float = WAIT) -> str:
    """One RAG request: 5 passages of 800 characters, a prompt that holds them, an answer."""
    question = f"When do you close on day {number}?"
    with tracer.start_as_current_span(
        "chain", attributes={KIND: "CHAIN", "input.value": question}
    ) as root:
        passages = [passage(number, rank) for rank in range(5)]
        with tracer.start_as_current_span(
            "retriever", attributes={KIND: "RETRIEVER", "input.value": question}
        ) as retriever:
            time.sleep(wait / 2)
            for rank, text in enumerate(passages):
                document = f"retrieval.documents.{rank}.document"
                retriever.set_attributes(
                    {
                        f"{document}.content": text,
                        f"{document}.id": f"kb-{rank}",
                        f"{document}.score": 1 / (1 + rank),
                    }
                )
        prompt = "\n\n".join([*passages, question])
        with tracer.start_as_current_span(
            "llm", attributes={KIND: "LLM", "input.value": prompt, "llm.model_name": "m"}
        ) as llm:
            time.sleep(wait / 2)
            work(loops)
            answer = f"We close at {number % 12} [1]. " * 10
            messages = {
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": prompt,
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": answer,
            }
            llm.set_attributes(messages)
            llm.set_attributes({"llm.token_count.prompt": 1000, "llm.token_count.completion": 80})
            llm.set_attribute("output.value", answer)
        root.set_attribute("output.value", answer)
    return answer


def one(tracer: Tracer, number: int, loops: int, wait: float, came: float) -> tuple[float, bool]:
    """Seconds, and whether it failed."""
    try:
        serve(tracer, number, loops, wait)
        failed = False
    except Exception:
        failed = True
    return time.perf_counter() - came, failed


def block(tracer: Tracer, numbers: range, loops: int, wait: float, rate: float) -> Block:
    if not rate:
        return [one(tracer, number, loops, wait, time.perf_counter()) for number in numbers]
    rng = random.Random(numbers.start)  # every condition gets the same arrivals
    due = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = []
        for number in numbers:
            due += rng.expovariate(rate)
            time.sleep(max(0.0, due - time.perf_counter()))
            waiting.append(pool.submit(one, tracer, number, loops, wait, due))
        return [done.result() for done in waiting]


def main() -> None:
    sys.setswitchinterval(float(os.environ.get("SWITCH_INTERVAL", sys.getswitchinterval())))
    target = sys.argv[1]
    loops = int(sys.argv[2])
    wait, rate = map(float, sys.argv[3:5])
    provider: TracerProvider | None = None
    tracer = NoOpTracerProvider().get_tracer("none")
    if target != "none":
        provider = provider_for(Noop() if target == "noop" else OTLPSpanExporter(target))
        tracer = provider.get_tracer("openinference.instrumentation.langchain")
    number = 0
    for line in sys.stdin:
        done = block(tracer, range(number, number + int(line)), loops, wait, rate)
        number += int(line)
        seconds, failed = zip(*done, strict=True)
        print(json.dumps({"seconds": seconds, "errors": sum(failed)}), flush=True)
    started = time.perf_counter()
    if provider is not None:
        provider.shutdown()
    print(json.dumps({"shutdown": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main()
