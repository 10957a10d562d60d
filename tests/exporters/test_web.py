from __future__ import annotations

import asyncio
import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.alerts.rule_sets import load_runbooks
from ragmeter.windows.worst import RankedTrace
from ragmeter_exporters.page.rendering import DOCS_URL, trace_page
from ragmeter_exporters.page.traces import trace_view
from ragmeter_exporters.page.views import PageOptions
from ragmeter_exporters.web import metrics_app

from tests.exporters.fakes import (
    FakeAgent,
    as_agent_view,
    estimate,
    everything,
    metrics_port,
    trace,
)
from tests.tables import each_row
from tests.waiting import PATIENCE

openmetrics: Callable[[str], Iterable[Any]] = parse_openmetrics

RUNBOOKS = ["README.md", *(f"{page}.md" for page in load_runbooks())]


def ask(
    agent: FakeAgent, path: str, method: str = "GET", **headers: str
) -> tuple[ClientResponse, bytes]:
    """One request to a fresh server; the body as it went over the wire."""

    async def run() -> tuple[ClientResponse, bytes]:
        app = metrics_port(agent)
        async with TestClient(TestServer(app), auto_decompress=False) as client:
            answer = await client.request(
                method, path, headers=headers, skip_auto_headers=["Accept-Encoding"]
            )
            return answer, await answer.read()

    return asyncio.run(run())


def test_plain_text_unless_openmetrics_is_asked_for() -> None:
    answer, body = ask(everything(), "/metrics/detail")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "Content-Encoding" not in answer.headers
    assert any(family.name == "rag_grounding_mean" for family in parse_text(body.decode()))

    answer, body = ask(everything(), "/metrics", Accept="application/openmetrics-text")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert list(openmetrics(body.decode()))
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"


@each_row(
    ("path", "content"),
    [
        ("/metrics", b"rag_latency_seconds"),
        ("/metrics/detail", b"rag_grounding_mean"),
        ("/", b"<h1"),
        ("/service/bot", b"<h1"),
        ("/service/bot/details", b"<h1"),
        ("/api/windows.json", b'"stream_time"'),
    ],
)
def test_gzip_when_accepted(path: str, content: bytes) -> None:
    answer, body = ask(everything(), path, **{"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert content in gzip.decompress(body)
    assert content in ask(everything(), path)[1]


@each_row("path", ["/", "/metrics", "/nothing", "/healthz", "/api/windows.json"])
def test_every_answer_forbids_scripts_and_frames(path: str) -> None:
    answer, _ = ask(everything(), path)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_policy_allows_exactly_the_style_of_the_page() -> None:
    answer, body = ask(everything(), "/")
    (style,) = re.findall(rb"<style>(.*?)</style>", body, re.DOTALL)
    digest = b64encode(sha256(style).digest()).decode()
    assert f"'sha256-{digest}'" in answer.headers["Content-Security-Policy"]
    assert b" style=" not in body
    assert b"<script" not in body
    loaded = re.sub(rb"<a [^>]*>", b"", body)  # a link loads nothing by itself
    assert not re.search(rb'(?:src|href)="(?:[a-z]+:)?//', loaded)


def test_pages_load_anew_where_asked_to() -> None:
    for path in ("/", "/service/bot?range=7d", "/service/bot/details"):
        answer, body = ask(everything(), path)
        assert "Refresh" not in answer.headers
        assert b'http-equiv="refresh"' not in body
        joined = f"{path}{'&' if '?' in path else '?'}refresh"
        assert ask(everything(), joined)[0].headers["Refresh"] == "30"


def test_a_trace_is_found_by_its_id() -> None:
    answer, body = ask(everything(), "/trace?id=%20t-1%20")
    assert str(answer.url.path) == "/trace/bot/t-1"
    assert b"Hold the button" in body
    for unknown in ("", "?id=", "?id=t-2", f"?id={'x' * 3000}", "?id=%3Cscript%3E"):
        answer, body = ask(everything(), f"/trace{unknown}")
        assert answer.status == 404
        assert b"keeps the worst traces" in body
        assert b"<script" not in body
        assert b"x" * 200 not in body


def test_a_question_is_shown_large_over_a_length_of_time() -> None:
    _, body = ask(everything(), "/service/bot?question=cost&range=14d")
    assert b'aria-label="Chart of cost"' in body
    assert b'range=14d#chart" aria-current="true">14d<' in body
    for query in ("range=99d&question=nothing", "range=%3Cb%3E", "question=%3Cb%3E"):
        answer, body = ask(everything(), f"/service/bot?{query}")
        assert answer.status == 200
        assert b'aria-label="Chart of works"' in body
        assert b'aria-current="true">24h<' in body
        assert b"&lt;b" not in body


def test_one_service_alone_is_the_first_page_and_several_are_a_list() -> None:
    agent = everything()
    assert b'aria-label="Chart of works"' in ask(agent, "/")[1]
    agent.fake.table["other", "", "grounding", "builtin", "1h"] = estimate()
    assert b"2 services" in ask(agent, "/")[1]


def test_charts_of_a_length_of_time_and_one_of_them_large() -> None:
    path = "/service/bot/details"
    _, body = ask(everything(), f"{path}?range=14d&metric=grounding&scorer=builtin")
    assert b'id="chart"' in body
    assert b"Last 14d" in body
    assert ask(everything(), f"{path}?range=latency&metric=latency&scorer=total")[0].ok
    for query in ("range=99d&metric=nothing&scorer=x", "range=%3Cb%3E", "metric=<b>"):
        answer, body = ask(everything(), f"{path}?{query}")
        assert answer.status == 200
        assert b'id="chart"' not in body
        assert b"Last 1h" in body
        assert b"&lt;b" not in body


def test_a_trace_leads_to_its_neighbours_and_to_the_tracing_backend() -> None:
    agent = everything()
    for metric in ("answered", "grounding"):
        agent.fake.bad["bot", metric, "builtin"] = [
            RankedTrace(f"{metric}-{number}" if number != 1 else "t-1", number / 10, 0.0)
            for number in range(3)
        ]
    document = agent.documents["bot", "t-1"]
    document["trace"]["span"] = {"trace_id": 'a"b/c', "span_id": "1"}

    def links(query: str, template: str = "") -> list[str]:
        options = PageOptions(trace_url=template)
        view = trace_view(as_agent_view(agent), "bot", "t-1", options, ("answered", query))
        assert view is not None
        html = trace_page(view).split("<nav")[1].split("</nav>")[0]
        assert "2nd worst of 3 by" in html
        return re.findall(r'href="([^"]*)"', html)

    template = "https://tempo.example/{service}/{trace_id}?x={trace_id}"
    assert links("builtin", template) == [
        "/trace/bot/answered-0?metric=answered&amp;scorer=builtin",
        "/trace/bot/answered-2?metric=answered&amp;scorer=builtin",
        "https://tempo.example/bot/a%22b%2Fc?x=a%22b%2Fc",
    ]
    assert [link.partition("?")[0] for link in links("nobody")] == [
        "/trace/bot/grounding-0",
        "/trace/bot/grounding-2",
    ]


@each_row(
    ("service", "trace_id"),
    [
        ("bot", "t-1"),
        ("a/b:c", "mtrag:8d/7?x=1&y#2"),
        ("%2F", "100%"),
        ("größe", "a b+c"),
        ("{s}", "a}{b/{c}"),
    ],
)
def test_ids_of_any_characters_lead_to_their_pages(service: str, trace_id: str) -> None:
    agent = FakeAgent()
    agent.fake.table[(service, "", "grounding", "builtin", "1h")] = estimate()
    agent.documents[(service, trace_id)] = {"trace": trace(query="the query"), "results": []}
    path = f"/trace/{quote(service, safe='')}/{quote(trace_id, safe='')}"

    async def run() -> list[int]:
        from yarl import URL

        async with TestClient(TestServer(metrics_app(as_agent_view(agent)))) as client:
            one = await client.get(URL(path, encoded=True))
            assert "the query" in await one.text()
            url = URL(f"/service/{quote(service, safe='')}", encoded=True)
            return [one.status, (await client.get(url)).status]

    assert asyncio.run(run()) == [200, 200]


@each_row(
    "path",
    [
        "/nothing",
        "/service/other",
        "/service/other/details",
        "/trace/bot/other",
        "/trace/bot",
        "/runbooks/x.md",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(path: str) -> None:
    answer, body = ask(everything(), path)
    assert answer.status == 404
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"Back to the status page" in body


@each_row("name", RUNBOOKS)
def test_every_runbook_is_served_and_its_links_lead_to_others_or_to_the_docs(name: str) -> None:
    answer, body = ask(everything(), f"/runbooks/{name}")
    assert answer.status == 200
    text = body.decode()
    assert ("Any incident, in three steps" if name == "README.md" else "What to do") in text
    for link in re.findall(r'<a href="([^"]*)"', text.partition("<article")[2]):
        assert link in (*RUNBOOKS, "/") or link.startswith(DOCS_URL), link


def test_head_and_other_methods() -> None:
    answer, body = ask(everything(), "/metrics", "HEAD")
    assert (answer.status, body) == (200, b"")
    answer, _ = ask(everything(), "/metrics", "POST")
    assert answer.status == 405
    assert "GET" in answer.headers["Allow"]


def test_readiness_says_why_not() -> None:
    answer, body = ask(FakeAgent(), "/readyz")
    assert (answer.status, body) == (200, b"ready\n")
    agent = FakeAgent(state=AgentHealth(problems=("disk full", "stalled for 90 s")))
    answer, body = ask(agent, "/readyz")
    assert (answer.status, body) == (503, b"disk full\nstalled for 90 s\n")
    assert ask(agent, "/healthz")[0].status == 200


def test_a_failure_is_a_plain_500_without_detail(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeAgent):
        def health(self) -> AgentHealth:
            raise RuntimeError("the password is hunter2")

    answer, body = ask(Broken(), "/")
    assert answer.status == 500
    assert b"hunter2" not in body
    assert "hunter2" in caplog.text


def test_the_windows_as_json() -> None:
    agent = everything()
    agent.alert_list[0].value = float("nan")
    answer, body = ask(agent, "/api/windows.json")
    assert answer.headers["Content-Type"].startswith("application/json")
    found: dict[str, Any] = json.loads(body)
    assert found["windows"] == ["5m", "1h", "24h"]
    rows = found["services"]["bot"][""]["metrics"]
    row = next(r for r in rows if (r["metric"], r["window"]) == ("grounding", "1h"))
    assert (row["value"], row["lower"], row["samples"]) == (0.8, 0.75, 40)
    assert row["states"]["unscored"] == 1
    little = next(r for r in rows if (r["metric"], r["window"]) == ("relevance", "5m"))
    assert "value" not in little
    assert found["services"]["bot"]["model=m-1"]["latency"][0]["quantile"] == 0.5
    assert found["alerts"][0]["value"] is None


class Patient(FakeAgent):
    """Tells its health also while the test holds the lock."""

    def health(self) -> AgentHealth:
        return self.state


def test_a_long_scrape_does_not_stop_the_loop() -> None:
    agent = Patient(**vars(everything()))

    async def run() -> None:
        async with TestClient(TestServer(metrics_app(as_agent_view(agent)))) as client:
            with agent.mutex:  # the writer holds the lock: no page can be made
                scrapes = [asyncio.create_task(client.get("/metrics")) for _ in range(4)]
                await asyncio.sleep(0.05)
                async with asyncio.timeout(PATIENCE):
                    assert (await client.get("/healthz")).status == 200
                    assert (await client.get("/readyz")).status == 200
            assert [(await scrape).status for scrape in scrapes] == [200] * 4

    asyncio.run(run())


def test_routes_that_others_add_keep_their_own_errors() -> None:
    async def refuse(request: web.Request) -> web.Response:
        raise web.HTTPRequestEntityTooLarge(max_size=1, actual_size=2)

    async def run() -> tuple[int, str]:
        app = metrics_app(as_agent_view(FakeAgent()))
        app.router.add_post("/v1/rag/traces", refuse)
        async with TestClient(TestServer(app)) as client:
            answer = await client.post("/v1/rag/traces", data=b"x")
            return answer.status, answer.headers["Content-Type"]

    assert asyncio.run(run()) == (413, "text/plain; charset=utf-8")
