from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ragmeter.config.loader import ConfigError
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.score import ScoredTrace
from ragmeter.trace import Trace
from ragmeter_exporters.otel.exporter import ResultsExporter
from ragmeter_exporters.otel.pipeline import ExportLimits

from tests.exporters.otel.collector import serve
from tests.exporters.otel.running import awaited, exporting
from tests.exporters.otel.scores import Agent, done, score
from tests.ports import free_port
from tests.waiting import until_async


@awaited
async def test_without_an_endpoint_nothing_happens() -> None:
    agent = Agent()
    exporter = ResultsExporter(ResultsExportSettings())
    exporter.start(agent)
    exporter.put(done())
    await exporter.stop()
    assert list(agent.counters.items()) == []


@awaited
async def test_the_environment_alone_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"{found.url}/v1/logs")
        agent = Agent()
        exporter = ResultsExporter(ResultsExportSettings())
        exporter.start(agent)
        exporter.put(done())
        await exporter.stop()
    assert found.raw == []
    assert list(agent.counters.items()) == []


@awaited
async def test_the_environment_moves_nothing_and_adds_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=theirs,x-more=b")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=checkout")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "checkout")
    monkeypatch.setenv("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", "1")
    async with serve() as found, exporting(found.url, headers="x-tenant=ours") as (exporter, agent):
        exporter.put(done())
        await until_async(lambda: agent.counted() == {"sent": 1})
    (headers,) = found.headers
    assert (headers["x-tenant"], headers["x-more"]) == ("ours", "b")
    assert headers["user-agent"].startswith("ragmeter/")
    assert len(found.records[0].attributes) > 5
    assert found.resources[0].attributes[0].value.string_value == "ragmeter"


def test_without_the_extra_an_endpoint_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ragmeter_exporters.otel")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._logs", None)
    from ragmeter_exporters.otel.exporter import ResultsExporter as WithoutExtra

    WithoutExtra(ResultsExportSettings())
    with pytest.raises(ConfigError, match=r"pip install '\.\[otel\]'"):
        WithoutExtra(ResultsExportSettings(endpoint="http://127.0.0.1:9"))


def test_an_sdk_that_is_switched_off_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    ResultsExporter(ResultsExportSettings())
    with pytest.raises(ConfigError, match="OTEL_SDK_DISABLED"):
        ResultsExporter(ResultsExportSettings(endpoint="http://127.0.0.1:9"))


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
async def test_a_password_of_the_url_is_sent_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password theirs")
    monkeypatch.setenv("NETRC", str(netrc))
    async with serve() as found:
        for url, sent in (
            (found.url.replace("//", "//ü:p%40ss@"), "Basic w7w6cEBzcw=="),
            (found.url, None),
        ):
            async with exporting(url) as (exporter, agent):
                exporter.put(done())
                await until_async(lambda: agent.counted() == {"sent": 1})
            assert found.headers[-1].get("authorization") == sent


@awaited
async def test_no_log_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"http://u:hush@127.0.0.1:{free_port()}/hush"
    limits = {"timeout_seconds": 0.5}
    async with exporting(url, headers="x-key=hush", limits=limits) as (exporter, agent):
        exporter.put(done(number=20))
        await until_async(lambda: agent.counted() == {"gave_up": 20})
    assert "results are dropped" in caplog.text
    assert "hush" not in caplog.text


@awaited
async def test_text_stays_here_where_it_is_not_kept() -> None:
    """`privacy.content` other than full: what the state file must not hold does not leave."""
    agent = Agent()
    async with serve() as found:
        settings = ResultsExportSettings(endpoint=found.url)
        exporter = ResultsExporter(settings, texts=False, limits=ExportLimits(linger_seconds=0.01))
        exporter.start(agent)
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
