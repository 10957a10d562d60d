"""The shipped message templates, rendered by a real Alertmanager for receivers of our own."""

from __future__ import annotations

import asyncio
import html
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from ragmeter.alerts.alert import Alert
from ragmeter_exporters.alertmanager import Alertmanager

from tests.deploy.receivers import mail_parts, mailbox, receiver_settings
from tests.exporters.alerts import drifted, make
from tests.exporters.real_alertmanager import alertmanager
from tests.exporters.stub import Stub, serve
from tests.real import require
from tests.waiting import PATIENCE

PAGE = "https://rag.example:9464"
HOSTILE = "<!channel> & <script>alert(1)</script>"


@pytest.mark.real
def test_each_receiver_gets_the_whole_story(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")
    fell = drifted(
        service="support",
        severity="critical",
        summary=f"support: grounding went from 0.8 to 0.6 {HOSTILE} (95 % interval and more)",
        top_segment_words=f"model={HOSTILE} changed more than the others",
        worst=["t-1", HOSTILE, "t-2", "t-4"],
        runbook=f"{PAGE}/runbooks/drift.md",
    )
    failing = make(service="support", worst=[], value=None, lower=None)
    spans = [{"text": f"refunded within an hour {HOSTILE}"}, {"text": "by cheque"}]

    def scores(service: str, trace_id: str) -> list[dict[str, Any]]:
        detail = {"unsupported_spans": spans} if trace_id == "t-1" else None
        return [{"metric": "grounding", "scorer": "mini", "detail": detail}]

    def both_now() -> list[Alert]:
        # Alertmanager sends one that fired longer ago than it waits for others at once, by itself.
        now = time.time()
        return [replace(alert, fired_at=now) for alert in (fell, failing)]

    async def scenario() -> tuple[Stub, list[bytes]]:
        async with httpx.AsyncClient() as client, serve() as stub, mailbox() as (host, messages):
            own = receiver_settings(tmp_path, stub, host)
            async with alertmanager(binary, tmp_path, own=own, filled=True) as url:
                sender = Alertmanager(
                    client,
                    url,
                    both_now,
                    clock=time.time,
                    count=lambda *_: None,
                    status_url=PAGE,
                    read_scores=scores,
                )
                assert await sender.send()
                end = time.monotonic() + PATIENCE
                while not (messages and len(set(stub.paths)) >= 3):
                    assert time.monotonic() < end, (stub.paths, messages)
                    await asyncio.sleep(0.05)
        return stub, messages

    stub, messages = asyncio.run(scenario())
    sent = {path.split("/")[1]: body for path, body in zip(stub.paths, stub.bodies, strict=True)}
    title = "[CRITICAL] support: 2 alerts: RagErrorsHigh, RagDrift"
    story = [
        "support: grounding went from 0.8 to 0.6",
        "0.8 → 0.6 (95 % interval 0.55 to 0.65, 240 samples)",
        "1970-01-01 00:11 UTC (95 % sure: 1970-01-01 00:10 UTC to 1970-01-01 00:12 UTC)",
        "changed more than the others",
        "false alarm at most every 35 days (less than two weeks of history)",
        "unsupported",
        "refunded within an hour",
        "by cheque",
    ]
    hostile = quote(HOSTILE, safe="")

    slack = sent["slack"]["attachments"][0]
    assert (slack["title"], slack["color"]) == (title, "danger")
    assert slack["title_link"] == f"{PAGE}/service/support"
    assert [part for part in story if part not in slack["text"]] == []
    assert f"<{PAGE}/trace/support/t-1|t-1>: unsupported 'refunded" in slack["text"]
    assert f"<{PAGE}/trace/support/{hostile}|&lt;!channel&gt; &amp;" in slack["text"]
    assert f"<{PAGE}/trace/support/t-2|t-2>" in slack["text"]
    assert "t-4" not in slack["text"]
    assert f"<{PAGE}/service/support|Status page>" in slack["text"]
    assert f"<{PAGE}/runbooks/drift.md|Runbook>" in slack["text"]
    silence = r"<http://\S+/#/silences/new\?filter=%7B\S*service%3D%22support%22\S*%7D\|Silence>"
    assert re.search(silence, slack["text"])
    assert "<!channel>" not in slack["text"]

    pager = sent["pagerduty"]["payload"]
    assert (pager["summary"], pager["severity"]) == (title, "critical")
    text = pager["custom_details"]["story"]
    assert [part for part in story if part not in text] == []
    assert f"Worst trace: {PAGE}/trace/support/t-1\n  unsupported: 'refunded" in text
    links = {link["text"]: link["href"] for link in sent["pagerduty"]["links"]}
    assert links.pop("Silence").endswith("%22%7D")
    assert links == {
        "Worst trace": f"{PAGE}/trace/support/t-1",
        "Second worst trace": f"{PAGE}/trace/support/{hostile}",
        "Third worst trace": f"{PAGE}/trace/support/t-2",
        "Runbook": f"{PAGE}/runbooks/drift.md",
    }

    assert sent["opsgenie"]["priority"] == "P1"
    assert sent["opsgenie"]["message"] == title
    assert sent["opsgenie"]["description"] == text

    mail = mail_parts(messages[0])
    assert mail["subject"] == title
    read = html.unescape(re.sub("<[^>]*>", "", mail["text/html"]))
    assert [part for part in story if part not in read] == []
    assert "<script>" not in mail["text/html"]
    for path in ("service/support", "trace/support/t-1", f"trace/support/{hostile}"):
        assert f'href="{PAGE}/{path}"' in mail["text/html"]
    assert f'href="{PAGE}/runbooks/drift.md"' in mail["text/html"]
    assert "bot: too many errors" in mail["text/plain"]


@pytest.mark.real
def test_alerts_of_prometheus_say_no_more_than_they_know(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")
    graph = "http://prometheus.example:9090/graph?g0.expr=x"
    names = ["RagDrift", "RagDrift", "RagErrorsHigh", "RagLatencyHigh", "RagTimeoutsHigh", "RagX"]
    alerts = [
        {
            "labels": {"alertname": name, "service": "shop", "severity": "warning", "n": str(n)},
            "annotations": {"summary": f"shop (n {n}): {name} is 0.4", "runbook_url": f"{PAGE}/r"},
            "generatorURL": graph,
        }
        for n, name in enumerate(names)
    ]  # fmt: skip

    async def scenario() -> Stub:
        async with httpx.AsyncClient() as client, serve() as stub, mailbox() as (host, _):
            own = receiver_settings(tmp_path, stub, host)
            async with alertmanager(binary, tmp_path, own=own, filled=True) as url:
                (await client.post(f"{url}/api/v2/alerts", json=alerts)).raise_for_status()
                end = time.monotonic() + PATIENCE
                while len(set(stub.paths)) < 3:
                    assert time.monotonic() < end, stub.paths
                    await asyncio.sleep(0.05)
        return stub

    stub = asyncio.run(scenario())
    sent = {path.split("/")[1]: body for path, body in zip(stub.paths, stub.bodies, strict=True)}
    slack = sent["slack"]["attachments"][0]
    title = "shop: 6 alerts: RagDrift, RagErrorsHigh, RagLatencyHigh, RagTimeoutsHigh, …"
    assert slack["title"] == f"[WARNING] {title}"
    assert slack["title_link"] == sent["pagerduty"]["client_url"] == graph
    for text in (slack["text"], sent["opsgenie"]["description"]):
        assert "shop (n 1): RagDrift is 0.4" in text
        assert "Where" not in text
        assert "Status page" not in text
    assert f"<{graph}|Prometheus>" in slack["text"]
    assert f"Prometheus: {graph}" in sent["opsgenie"]["description"]
