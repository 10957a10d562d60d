"""The page on which people label, and `/v1/labels`: draws, CSRF, and what the labels say."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.parts.labels.desk import LabelDesk, label_routes
from ragmeter.parts.labels.pool import PoolTrace
from ragmeter.scoring.slow_tiers import build_slow_tiers
from ragmeter_exporters.page.part_pages import PartPageMaker

from tests.backends import Embedded, settings_of
from tests.exporters.browser import browser
from tests.parts.labels.samples import part_of
from tests.real import require
from tests.traces import good, trace_line
from tests.waiting import PATIENCE

TOKEN = "a-token-of-some-length"
LOGIN = {"Authorization": f"Bearer {TOKEN}"}
HOSTILE = "<script>alert(1)</script> <b>bold</b>"


def signed_in(base: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=PATIENCE, headers=LOGIN, base_url=base)


@asynccontextmanager
async def labelling(
    folder: Path, traces: int = 40, http: dict[str, Any] | None = None, suffix: str = ""
) -> AsyncIterator[tuple[EmbeddedAgent, str]]:
    settings = load_settings(
        environ={},
        overrides={
            "http": {
                "otlp_port": 0,
                "metrics_port": 0,
                **({"token": TOKEN} if http is None else http),
            },
            "state": {"path": str(folder / "s")},
            "sampling": {"people": 1},
            "models": {"cpu_share": 1},
        },
    )
    tiers = partial(build_slow_tiers, settings)  # with the embedded model
    agent = EmbeddedAgent(settings, [], live=False, tiers=tiers, parts=PARTS)
    agent.start()
    try:
        answers = (
            "Click Forgot password on the login page [1].",
            f"Call 5 {HOSTILE}",
            "I don't know.",
        )
        items = [
            good(number, trace_id=f"t{number}{suffix}", answer=answers[number % 3])
            for number in range(traces)
        ]
        await asyncio.to_thread(lambda: agent.accept(items, "test", live=False))
        await asyncio.to_thread(agent.wait_replayed)
        async with serve_agent(agent, settings) as (_, page):
            yield agent, page
    finally:
        await asyncio.to_thread(agent.stop, 5)


def field(text: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found is not None, text[:2000]
    return found.group(1)


def test_without_a_draw_the_page_of_labels_says_where_to_label() -> None:
    async def run() -> None:
        app = web.Application()
        app.add_routes(label_routes(None))
        async with TestClient(TestServer(app)) as client:
            reply = await client.get("/label/bot")
            assert reply.status == 404
            text = await reply.text()
            assert "ragmeter label FILE" in text
            assert "rag.feedback" in text

    asyncio.run(run())


def test_two_people_get_different_traces(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            labelling(tmp_path) as (agent, base),
            signed_in(base) as client,
        ):
            with agent.lock():
                part_of(agent.states()[0]).pool.draw("bot", 3)

            cookies: dict[str, dict[str, str]] = {}

            async def shown(person: str) -> str:
                page = await client.get("/label/bot", headers=cookies.get(person))
                name, _, rest = page.headers["Set-Cookie"].partition(";")
                assert "HttpOnly" in rest
                assert "SameSite=Strict" in rest
                cookies[person] = {"Cookie": name}
                client.cookies.clear()
                return field(page.text, "trace")

            first, second = await shown("a"), await shown("b")
            assert first != second
            assert (await shown("a"), await shown("b")) == (first, second), "until it is labelled"
            assert await shown("c") not in (first, second)
            assert await shown("d"), "all are lent: one of them again"

    asyncio.run(run())


def test_two_people_who_ask_at_once_get_different_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Embedded(settings_of(tmp_path, sampling={"people": 1}, models={"cpu_share": 0}))
    backend.feed([trace_line(number) for number in range(4)])
    desk = LabelDesk(backend.view, PartPageMaker(backend.view))
    desk._draw("bot", 4)
    entered, go_on = threading.Event(), threading.Event()
    texts = desk._text
    asked = list[str]()

    def text(service: str, one: PoolTrace) -> dict[str, Any] | None:
        asked.append(one.trace_id)
        if len(asked) == 1:  # the text of the first is not here yet, and it takes long to know
            entered.set()
            go_on.wait(PATIENCE)
            return None
        return texts(service, one)

    monkeypatch.setattr(desk, "_text", text)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(desk._view, "bot", "a")
        assert entered.wait(PATIENCE)
        second = threads.submit(desk._view, "bot", "b")
        with suppress(TimeoutError):
            second.result(0.2)
        go_on.set()
        shown = [done.result(PATIENCE) for done in (first, second)]
    backend.stop()
    ids = [view.trace_id for view in shown if view and view.trace_id]
    assert len(set(ids)) == 2


def test_labels_from_the_page_are_counted(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            labelling(tmp_path) as (agent, base),
            signed_in(base) as client,
        ):
            page = await client.get("/label/bot")
            assert "40 traces wait" in page.text
            assert "What your people say" not in page.text, "they have said nothing"
            assert "form-action 'self'" in page.headers["Content-Security-Policy"]
            origin = {"Origin": base}
            made = await client.post(
                "/label/bot",
                data={"token": field(page.text, "token"), "count": "30"},
                headers=origin,
            )
            assert made.status_code == 303
            for number in range(30):
                page = await client.get("/label/bot")
                assert f"{number} of 30 done" in page.text
                assert "<script>" not in page.text
                form = {
                    "token": field(page.text, "token"),
                    "trace": field(page.text, "trace"),
                    "answered": "yes" if number % 5 else "no",
                    "grounded": ("yes", "no", "cannot_tell")[number % 3] if number % 5 else "",
                    "relevant": "yes",
                }
                stored = await client.post("/label/bot", data=form, headers=origin)
                assert stored.status_code == 303, stored.text
            again = await client.post("/label/bot", data=form, headers=origin)
            assert (again.status_code, "has a label by now" in again.text) == (400, True)
            page = await client.get("/label/bot")
            assert "No trace waits" in page.text
            assert "<td>people</td>" in page.text
            assert "people+" not in page.text
            assert "grounding (mini)" in page.text
            assert "grounding (mini)" in (await client.get("/service/bot/details")).text
            with agent.lock():
                estimate = agent.windows.estimate("bot", "", "relevance", "people", "24h")
                assert estimate is None
                estimate = agent.windows.estimate("bot", "", "answered", "people", "24h")
                assert estimate is not None
                assert estimate.samples == 30
                assert estimate.value == pytest.approx(24 / 30, abs=0.1)
                # of 40 traces 30 are labelled: little is left to chance
                assert 0.05 < estimate.upper - estimate.lower < 0.25
                grounding = agent.windows.estimate("bot", "", "grounding", "people", "24h")
                assert grounding is not None
                assert grounding.unscored > 0.2, "cannot tell widens"
                assert grounding.upper - grounding.lower > 0.3
            agent_json = (await client.get("/api/windows.json")).json()
            scorers = {row["scorer"] for row in agent_json["services"]["bot"][""]["metrics"]}
            assert "people" in scorers
            assert not any("+" in scorer for scorer in scorers)
            metrics = (await client.get("/metrics/detail")).text
            assert re.search(r'rag_answered_ratio\{.*scorer="people"', metrics)
            assert not re.search(r'scorer="[^"]*\+', metrics)

    asyncio.run(run())


def test_forms_of_others_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            labelling(tmp_path) as (agent, base),
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE, base_url=base) as client,
        ):
            assert (await client.get("/label/bot")).status_code == 401
            assert (await client.post("/label/bot", data={"count": "3"})).status_code == 401
            client.headers.update(LOGIN)
            token = field((await client.get("/label/bot")).text, "token")
            form = {"token": token, "count": "3"}
            for origin in (
                "https://evil.example",
                "null",
                f"{base}.evil.example",
                "http://127.0.0.1",
            ):
                reply = await client.post("/label/bot", data=form, headers={"Origin": origin})
                assert reply.status_code == 403, origin
            for wrong in ("", "0" * 64, token[:-1], "ä\udc80".encode("utf-8", "replace").decode()):
                reply = await client.post("/label/bot", data={**form, "token": wrong})
                assert reply.status_code == 400
                assert "too old" in reply.text
            # no other path takes a form, even from its own page
            reply = await client.post("/v1/labels", json={"count": 3}, headers={"Origin": base})
            assert reply.status_code == 403
            with agent.lock():
                assert part_of(agent.states()[0]).pool.state("bot")[2] == 40, "nothing was drawn"
            reply = await client.post("/label/bot", data=form, headers={"Origin": base})
            assert reply.status_code == 303
            page = (await client.get("/label/bot")).text
            good_form = {"token": field(page, "token"), "trace": field(page, "trace")}
            for bad in (
                {"answered": "yes", "relevant": "yes"},  # an answer that is one claims something
                {"answered": "maybe", "grounded": "no", "relevant": "yes"},
                {},
            ):
                reply = await client.post("/label/bot", data={**good_form, **bad})
                assert reply.status_code == 400, bad
            other = {**good_form, "trace": "t999", "answered": "no", "relevant": "no"}
            assert (await client.post("/label/bot", data=other)).status_code == 400, (
                "another's token"
            )
            assert (await client.get("/label/nobody")).status_code == 404
            upload = await client.post("/label/bot", data=form, files={"trace": b"x"})
            assert upload.status_code == 415

    asyncio.run(run())


def test_a_program_asks_and_sends_labels(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            labelling(tmp_path) as (_, base),
            signed_in(base) as client,
        ):
            counts: list[Any] = ["30", 2.5, None, [3], {}]
            ids: list[Any] = [5, None, ["t1"], {}]
            wrong: list[dict[str, Any]] = [{"service": "nobody"}, {"service": ["bot"]}]
            wrong += [{"count": one} for one in counts] + [{"trace_id": one} for one in ids]
            for bad in (b"[]", b"{", *(json.dumps(one).encode() for one in wrong)):
                assert (await client.post("/v1/labels", content=bad)).status_code == 400, bad
            for path, kind in (("/v1/labels", "json"), ("/label/bot", "x-www-form-urlencoded")):
                odd = {"Content-Type": f"application/{kind}; charset=none"}
                assert (await client.post(path, content=b"{}", headers=odd)).status_code == 415
            document = (await client.post("/v1/labels", json={"count": 10})).json()
            assert len(document["questions"]) == 10
            assert {one["probability"] for one in document["questions"]} == {0.25}
            labels = [
                {
                    "trace_id": one["trace"]["trace_id"],
                    "timestamp": time.time(),
                    "scorer": "people",
                    "probability": one["probability"],
                    "verdict": {"grounded": True, "answered": True, "relevant": True},
                }
                for one in document["questions"]
            ]
            for one in labels[:5]:  # as `ragmeter label`
                given = {"trace_id": one["trace_id"], "verdict": one["verdict"]}
                assert (await client.post("/v1/labels", json=given)).json() == {"accepted": 1}
                repeated = await client.post("/v1/labels", json=given)
                assert repeated.status_code == 409
                assert repeated.json()["error"].startswith("This trace has a label by now")
            for verdict in (None, {}, {"grounded": "perhaps"}):
                given = {"trace_id": labels[5]["trace_id"], "verdict": verdict}
                assert (await client.post("/v1/labels", json=given)).status_code == 400
            assert (await client.post("/v1/feedback", json=labels[5:])).json()["accepted"] == 5
            document = (await client.post("/v1/labels", json={"count": 0})).json()
            assert document["questions"] == []
            estimates = {(row[0], row[1]): row[2:] for row in document["estimates"]}
            assert estimates["answered", "people"][0] == 1
            assert estimates["answered", "people"][1] < 0.8, "ten labels prove little"
            assert [row[:3] for row in document["agreement"] if row[0] == "answered"] == [
                ["answered", "answered", "builtin"]
            ]

    asyncio.run(run())


def test_a_draw_survives_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            labelling(tmp_path) as (_, base),
            signed_in(base) as client,
        ):
            before = (await client.post("/v1/labels", json={"count": 7})).json()["questions"]
        async with (
            labelling(tmp_path) as (_, base),
            signed_in(base) as client,
        ):
            after = (await client.post("/v1/labels", json={"count": 7})).json()["questions"]
            assert [one["trace"]["trace_id"] for one in after] == [
                one["trace"]["trace_id"] for one in before
            ]

    asyncio.run(run())


@pytest.mark.real
def test_a_person_labels_in_a_browser(tmp_path: Path) -> None:
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")

    def visit(base: str) -> None:
        with browser(chromedriver, chromium, tmp_path) as page:
            page.size(400, 900)
            page.open(f"{base}/label/bot")
            page.run("document.querySelector('form.label button').click()")
            _wait(page, "return !!document.querySelector('input[name=trace]')")
            first = page.run("return document.querySelector('input[name=trace]').value")
            assert page.run("return [document.documentElement.scrollWidth, innerWidth]") == [
                400,
                400,
            ]
            for name in ("answered", "grounded", "relevant"):
                page.run(f"document.querySelector('input[name={name}]').click()")
            page.run("document.querySelector('form.label button').click()")
            _wait(
                page,
                f"return (document.querySelector('input[name=trace]') || {{}}).value != '{first}'",
            )
            assert "1 of 30 done" in page.run("return document.body.innerText")
            assert page.run("return document.scripts.length") == 0
            complaints = [one for one in page.logs() if "favicon" not in one["message"]]
            assert complaints == []

    async def run() -> None:
        async with labelling(tmp_path, http={}, suffix="\r\n\u202e\x00 ä%25") as (_, base):
            await asyncio.to_thread(visit, base)

    asyncio.run(run())


def _wait(page: Any, script: str) -> None:
    deadline = time.monotonic() + 60
    while not page.run(script):
        assert time.monotonic() < deadline, script
        time.sleep(0.05)
