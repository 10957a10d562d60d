from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.score import ScoredTrace
from ragmeter.trace import Trace
from ragmeter_exporters.otel.exporter import ExportLimits, ResultsExporter

from tests.exporters.otel.collector import LOGS, TRACES, plain, serve
from tests.exporters.otel.running import awaited, exporting
from tests.exporters.otel.scores import Agent, done, score
from tests.ports import free_port
from tests.waiting import until_async


@awaited
async def test_without_an_endpoint_nothing_happens() -> None:
    agent = Agent()
    exporter = ResultsExporter(ResultsExportSettings())
    await exporter.start(agent)
    exporter.put(done())
    await exporter.stop()
    assert list(agent.counters.items()) == []


@awaited
async def test_both_signals_go_their_own_way() -> None:
    async with serve() as found, exporting(found.url, spans=True) as (exporter, agent):
        exporter.put(done(score(), score("relevance", None)))
        await until_async(lambda: agent.counted("logs") == agent.counted("spans") == {"sent": 2})
        assert {path for path, _ in found.raw} == {LOGS, TRACES}
        assert len(found.records) == len(found.spans) == 2


@awaited
async def test_a_base_path_is_kept_and_secrets_are_sent(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("authorization: Bearer one")
    async with (
        serve() as found,
        exporting(f"{found.url}/otlp/", headers_file=file) as (exporter, agent),
    ):
        exporter.put(done())
        await until_async(lambda: agent.counted() == {"sent": 1})
        file.write_text("authorization: Bearer two")
        exporter.put(done())
        await until_async(lambda: agent.counted() == {"sent": 2})
    assert [path for path, _ in found.raw] == ["/otlp/v1/logs"] * 2
    assert [one["authorization"] for one in found.headers] == ["Bearer one", "Bearer two"]


@awaited
async def test_a_signal_that_is_not_taken_holds_up_no_other() -> None:
    """A collector without a pipeline of traces."""

    async def reply(number: int) -> web.Response:
        return web.Response(status=404 if found.raw[number][0] == TRACES else 200)

    async with serve(reply) as found, exporting(found.url, spans=True) as (exporter, agent):
        exporter.put(done())
        await until_async(lambda: agent.counted("logs") == {"sent": 1})
        await until_async(lambda: agent.counted("spans") == {"refused": 1})


@awaited
async def test_a_trace_that_names_no_span_gets_an_event_and_no_span() -> None:
    async with serve() as found, exporting(found.url, spans=True) as (exporter, agent):
        exporter.put([*done(span=False), *done(trace_id="t-2")])
        await until_async(lambda: agent.counted("logs") == {"sent": 2})
        await until_async(lambda: agent.counted("spans") == {"no_span": 1, "sent": 1})
        assert [plain(one.attributes)["ragmeter.trace_id"] for one in found.spans] == ["t-2"]


@awaited
async def test_text_stays_here_where_it_is_not_kept() -> None:
    """`privacy.content` other than full: what the state file must not hold does not leave."""
    agent = Agent()
    async with serve() as found:
        settings = ResultsExportSettings(endpoint=found.url)
        exporter = ResultsExporter(settings, texts=False, limits=ExportLimits(linger_seconds=0))
        await exporter.start(agent)
        exporter.put(done(score(detail={"worst_sentence": "the secret"})))
        await until_async(lambda: agent.counted() == {"sent": 1})
        await exporter.stop()
        assert b"secret" not in found.raw[0][1]


@awaited
async def test_the_worker_is_neither_waited_for_nor_hurt(caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = [("no trace", "no scores")]
    async with exporting(f"http://127.0.0.1:{free_port()}", limits={"queue": 100}) as (
        exporter,
        agent,
    ):
        worker = threading.Thread(target=_work, args=(exporter, broken))
        worker.start()
        await asyncio.to_thread(worker.join, 60)  # a queue that is full would hold it for ever
        assert not worker.is_alive()
        assert agent.counted()["queue_full"] >= 10_000 - 100 - 10
    assert "cannot be exported" in caplog.text


def _work(exporter: ResultsExporter, broken: list[tuple[Trace, ScoredTrace]]) -> None:
    exporter.put(broken)
    for _ in range(100):
        exporter.put(done(number=100))
