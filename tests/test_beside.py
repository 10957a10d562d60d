"""Beside an application: whatever ragmeter does, its requests neither fail nor wait.

By causality, not by the clock: what the exporter waits for comes only when the requests are done.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.beside import RECOMMENDED
from benchmarks.beside_app import provider_for, serve
from benchmarks.beside_sidecars import Answering, answering, closed, silent

REQUESTS = 50
FOREVER = 3600.0
PATIENCE = 60  # seconds, before a test is taken to hang
PRODUCER = Path(__file__).parents[1] / "examples" / "producer.py"


@pytest.fixture(autouse=True)
def recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in RECOMMENDED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")  # the exporter is at work from the start


@contextmanager
def instrumented(url: str, server: Answering | None = None) -> Iterator[TracerProvider]:
    """Its exporter waits for `server` however long it takes, and soon gives up without one."""
    provider = provider_for(OTLPSpanExporter(url, timeout=FOREVER if server else 0.2))
    try:
        yield provider
    finally:
        if server:
            server.released.set()
        provider.shutdown()


def requests(provider: TracerProvider, count: int = REQUESTS) -> int:
    """How many were served, in a thread: one that waits fails the test and does not hang it."""
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    served = []

    def all_of_them() -> None:
        for number in range(count):
            served.append(serve(tracer, number, 0, 0))

    thread = threading.Thread(target=all_of_them, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return len(served)


@pytest.mark.parametrize("place", [closed, silent])
def test_requests_are_served_where_ragmeter_is_down_or_stopped(
    place: Callable[[], AbstractContextManager[str]],
) -> None:
    with place() as url, instrumented(url) as provider:
        assert requests(provider) == REQUESTS


def test_requests_are_served_while_the_exporter_waits_for_an_answer() -> None:
    with answering(200, FOREVER) as (url, server), instrumented(url, server) as provider:
        assert requests(provider, 1) == 1
        assert server.asked.acquire(timeout=PATIENCE)  # the exporter hangs from here on
        assert requests(provider) == REQUESTS
        assert server.answered == 0


def test_more_than_the_queue_holds_is_dropped_not_waited_for() -> None:
    many = int(RECOMMENDED["OTEL_BSP_MAX_QUEUE_SIZE"])  # three spans each
    with answering(200, FOREVER) as (url, server), instrumented(url, server) as provider:
        assert requests(provider, many) == many
        assert server.answered == 0


def test_requests_are_served_where_ragmeter_is_full() -> None:
    with answering(429) as (url, server), instrumented(url) as provider:
        assert requests(provider, 1) == 1
        assert server.asked.acquire(timeout=PATIENCE)
        assert requests(provider) == REQUESTS


def test_spans_come_where_ragmeter_is_there() -> None:
    with answering(200) as (url, server), instrumented(url, server) as provider:
        assert requests(provider) == REQUESTS
        assert server.asked.acquire(timeout=PATIENCE)


def producer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("producer", PRODUCER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_producer_neither_waits_nor_fails() -> None:
    module = producer()
    trace = module.trace("q", "p", "a")
    with answering(200, FOREVER) as (url, server):
        sender = module.Sender(url, most=2)
        sender.send(trace)
        assert server.asked.acquire(timeout=PATIENCE)  # one hangs
        for _ in range(5):  # two wait, three have no place
            sender.send(trace)
        assert sender.dropped == 3
        assert sender.sent == 0
        server.released.set()
        sender.close(PATIENCE)
    assert sender.sent == 3


def test_the_example_producer_tells_what_it_could_not_send(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = producer()
    with closed() as url:
        assert module.main(url) == 1
    assert "4 were not sent: ConnectError" in capsys.readouterr().err


def test_the_example_producer_tries_again_what_a_full_ragmeter_refused() -> None:
    module = producer()
    with answering(429) as (url, server):
        sender = module.Sender(url)
        sender.send(module.trace("q", "p", "a"))
        for _ in range(2):
            assert server.asked.acquire(timeout=PATIENCE)
            server.status = 200
        sender.close(PATIENCE)
    assert (sender.sent, sender.dropped) == (1, 0)


def test_the_example_producer_drops_what_is_refused_for_good() -> None:
    module = producer()
    with answering(400) as (url, _):
        sender = module.Sender(url)
        sender.send(module.trace("q", "p", "a"))
        sender.close(PATIENCE)
    assert (sender.sent, sender.dropped) == (0, 1)


def test_the_example_producer_survives_a_trace_that_is_no_json() -> None:
    module = producer()
    with answering(200) as (url, _):
        sender = module.Sender(url)
        sender.send({"x": object()})
        sender.send(module.trace("q", "p", "a"))
        sender.close(PATIENCE)
    assert (sender.sent, sender.dropped) == (1, 1)
