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
from ragmeter.parts.views import Change, Incident
from ragmeter_exporters.alertmanager import Alertmanager

from tests.deploy.receivers import mail_parts, mailbox, receiver_settings
from tests.exporters.incidents import opened
from tests.exporters.real_alertmanager import alertmanager
from tests.exporters.stub import Stub, serve
from tests.real import require
from tests.waiting import PATIENCE, until_async

PAGE = "https://rag.example:9464"
HOSTILE = "<!channel> & <script>alert(1)</script>"


def failing(**changes: Any) -> Incident:
    """Nothing relevant is found since a rebuild of the index, in hostile words."""
    fields: dict[str, Any] = {
        "service": "support",
        "question": "retrieved",
        "kind": "wrong_passages",
        "opened_at": time.time(),
        "title": "support: retrieval finds nothing relevant",
        "summary": f"Relevant passages 88 % -> 18 %, since 02:35 UTC. All requests. {HOSTILE}",
        "change": Change(9_300.0, "index_version", HOSTILE),
        "detail": (
            f"Changed: index_version new value {HOSTILE} at 02:35 UTC, 98 % of requests.",
            f"Asked most: {HOSTILE}",
            "It ends when 80 % are found for 15 min.",
        ),
        "advice": "Roll the index back.",
        "worst": ("t-1", HOSTILE, "t-2", "t-4"),
        "runbook": f"{PAGE}/runbooks/retrieval.md",
    }
    return opened(**{**fields, **changes})


def _whose(body: dict[str, Any]) -> str:
    """The receiver of a message, by what it holds: requests come side by side."""
    if "attachments" in body:
        return "slack"
    return "pagerduty" if "dedup_key" in body else "opsgenie"


def messages_of(folder: Path, *rounds: list[Incident]) -> list[tuple[dict[str, Any], bytes]]:
    """What each receiver got, by its name, and the e-mail, after each round of incidents."""
    binary = require("alertmanager", "prometheus-alertmanager")

    async def scenario() -> list[tuple[dict[str, Any], bytes]]:
        notified = []
        async with httpx.AsyncClient() as client, serve() as stub, mailbox() as (host, mails):
            own = receiver_settings(folder, stub, host)
            async with alertmanager(binary, folder, own=own, filled=True) as url:
                held: list[Incident] = []
                sender = Alertmanager(
                    client,
                    url,
                    lambda: held,
                    clock=time.time,
                    count=lambda *_: None,
                    status_url=PAGE,
                )
                for incidents in rounds:
                    before, letters = len(stub.paths), len(mails)
                    held[:] = incidents
                    assert await sender.send()
                    end = time.monotonic() + PATIENCE
                    while not (len(mails) > letters and len(set(stub.paths[before:])) >= 3):
                        assert time.monotonic() < end, (stub.paths, mails)
                        await asyncio.sleep(0.05)
                    await until_async(lambda: len(stub.bodies) == len(stub.paths))
                    notified.append(
                        ({_whose(body): body for body in stub.bodies[before:]}, mails[-1])
                    )
        return notified

    return asyncio.run(scenario())


@pytest.mark.real
def test_each_receiver_gets_the_whole_story(tmp_path: Path) -> None:
    ((sent, letter),) = messages_of(tmp_path, [failing()])
    title = "[PAGE] support: retrieval finds nothing relevant"
    story = [
        "Relevant passages 88 % -> 18 %, since 02:35 UTC. All requests.",
        "index_version",
        "at 02:35 UTC",
        "Asked most:",
        "It ends when 80 % are found for 15 min.",
        "Roll the index back.",
    ]
    hostile = quote(HOSTILE, safe="")
    page = f"{PAGE}/incident/support/0123456789abcdef"

    slack = sent["slack"]["attachments"][0]
    assert (slack["title"], slack["color"]) == (title, "danger")
    assert slack["title_link"] == page
    read = html.unescape(slack["text"])
    assert [part for part in story if part not in read] == []
    assert f"<{PAGE}/trace/support/t-1|t-1>" in slack["text"]
    assert f"<{PAGE}/trace/support/{hostile}|&lt;!channel&gt; &amp;" in slack["text"]
    assert "t-4" not in slack["text"]
    assert f"<{page}|Why>" in slack["text"]
    assert f"<{PAGE}/runbooks/retrieval.md|Runbook>" in slack["text"]
    silence = r"<http://\S+/#/silences/new\?filter=%7B\S*service%3D%22support%22\S*%7D\|Silence>"
    assert re.search(silence, slack["text"])
    assert "<!channel>" not in slack["text"]

    pager = sent["pagerduty"]["payload"]
    assert (pager["summary"], pager["severity"]) == (title, "critical")
    text = pager["custom_details"]["story"]
    assert [part for part in story if part not in text] == []
    links = {link["text"]: link["href"] for link in sent["pagerduty"]["links"]}
    assert links.pop("Silence").endswith("%22%7D")
    assert links == {
        "Worst request": f"{PAGE}/trace/support/t-1",
        "Second worst request": f"{PAGE}/trace/support/{hostile}",
        "Third worst request": f"{PAGE}/trace/support/t-2",
        "Runbook": f"{PAGE}/runbooks/retrieval.md",
    }

    assert sent["opsgenie"]["priority"] == "P1"
    assert sent["opsgenie"]["message"] == title
    assert sent["opsgenie"]["description"] == text

    mail = mail_parts(letter)
    assert mail["subject"] == title
    read = html.unescape(re.sub("<[^>]*>", "", mail["text/html"]))
    assert [part for part in story if part not in read] == []
    assert "<script>" not in mail["text/html"]
    for link in (page, f"{PAGE}/trace/support/t-1", f"{PAGE}/trace/support/{hostile}"):
        assert f'href="{link}"' in mail["text/html"]
    assert f'href="{PAGE}/runbooks/retrieval.md"' in mail["text/html"]
    assert "Roll the index back." in mail["text/plain"]


@pytest.mark.real
def test_a_change_is_said_once(tmp_path: Path) -> None:
    line = "Changed: index_version 7 -> 8 at 02:35 UTC, 100 % of requests."
    change = Change(9_300.0, "index_version", "8")
    ((sent, letter),) = messages_of(tmp_path, [failing(change=change, detail=(line, "Ends soon."))])
    for text in (
        sent["slack"]["attachments"][0]["text"],
        sent["pagerduty"]["payload"]["custom_details"]["story"],
        mail_parts(letter)["text/html"],
    ):
        assert text.count("Changed") == 1
        assert html.escape(line) in text or line in text or line.replace(">", "&gt;") in text


@pytest.mark.real
def test_what_gets_worse_and_what_is_over_is_a_message_of_the_same_group(tmp_path: Path) -> None:
    begin = time.time() - 100
    mild = failing(severity="warning", opened_at=begin)
    worse = failing(opened_at=begin, worsened_at=begin + 60, title="support: nothing is found")
    over = replace(
        worse,
        state="over",
        ended_at=time.time(),
        title="support: retrieval finds what it should again",
        summary="Relevant passages 87 %, as usual; it lasted 41 min.",
        advice="",
    )
    notified = messages_of(tmp_path, [mild], [worse], [over])
    titles = [sent["slack"]["attachments"][0]["title"] for sent, _ in notified]
    assert titles == [
        "[WARNING] support: retrieval finds nothing relevant",
        "[PAGE] support: nothing is found",
        "[OVER] support: retrieval finds what it should again",
    ]
    last = notified[-1][0]["slack"]["attachments"][0]
    assert last["color"] == "good"
    assert last["text"].startswith("Relevant passages 87 %, as usual; it lasted 41 min.")
    assert mail_parts(notified[-1][1])["subject"] == titles[-1]
    keys = {sent["pagerduty"]["dedup_key"] for sent, _ in notified}
    assert len(keys) == 1


@pytest.mark.real
def test_alerts_of_prometheus_say_no_more_than_they_know(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")
    graph = "http://prometheus.example:9090/graph?g0.expr=x"
    names = ["RagBurn", "RagBurn", "RagErrors", "RagLatency", "RagTimeouts", "RagX"]
    alerts = [
        {
            "labels": {"alertname": name, "service": "shop", "severity": "warning", "n": str(n)},
            "annotations": {"summary": f"shop (n {n}): {name} is 0.4", "runbook_url": f"{PAGE}/r"},
            "generatorURL": graph,
        }
        for n, name in enumerate(names)
    ]

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
    title = "shop: 6 alerts: RagBurn, RagErrors, RagLatency, RagTimeouts, …"
    assert slack["title"] == f"[WARNING] {title}"
    assert slack["title_link"] == sent["pagerduty"]["client_url"] == graph
    for text in (slack["text"], sent["opsgenie"]["description"]):
        assert "shop (n 1): RagBurn is 0.4" in text
        assert "Where" not in text
        assert "Status page" not in text
    assert f"<{graph}|Prometheus>" in slack["text"]
    assert f"Prometheus: {graph}" in sent["opsgenie"]["description"]
