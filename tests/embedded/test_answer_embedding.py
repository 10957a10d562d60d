"""Embeddings of answers in the running agent, against a server that works, lies and hangs, with
restarts in between."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ragmeter.config.loader import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter.scoring.slow_tiers import build_slow_tiers
from ragmeter_exporters.page.rendering import service_page
from ragmeter_exporters.page.views import service_view
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.scorers.llm.stub_embedding_server import Stub, stub_embeddings
from tests.traces import START, trace_line
from tests.waiting import stop_agent, until

ANSWERS = ("Zebras sleep standing.", "Standing is how zebras sleep.", "No idea.")
VECTORS = {ANSWERS[0]: [1.0, 0.0], ANSWERS[1]: [4.0, 3.0], ANSWERS[2]: [0.0, 1.0]}
# cosines of the pairs: 4/5, 0, 3/5
MEAN = (0.8 + 0.0 + 0.6) / 3


def lines(questions: int = 6) -> list[bytes]:
    return [
        trace_line(
            10 * question + at, query=f"Quixotic question {question}?", answer=answer, passages=[],
            timestamp=START + at,
        )
        for at, answer in enumerate(ANSWERS)
        for question in range(questions)
    ]  # fmt: skip


def table() -> dict[str, list[float]]:
    questions = {f"Quixotic question {n}?": [1.0, n - 2.6] for n in range(6)}
    return {**VECTORS, **questions}


class Agent:
    def __init__(self, folder: Path, stub: Stub | None, *, live: bool = False, **more: Any) -> None:
        embeddings = {"base_url": stub.base_url, "model": "m", "retries": 0} if stub else {}
        changes = {"embeddings": {**embeddings, **more.pop("embeddings", {})}}
        self.settings = load_settings(
            environ={},
            overrides={
                "state": {"path": str(folder / "s"), "dead_letters": str(folder / "d")},
                "windows": ["1h"],
                "consistency": changes,
                **more,
            },
        )
        settings = self.settings
        self.instrument = EmbeddedAgent(
            settings, [], live=live, tiers=lambda saved: build_slow_tiers(settings, saved)
        )
        self.instrument.start()

    def feed(self, traces: list[bytes], wait: bool = True) -> None:
        items = [(decode_trace(line, 2**20), at) for at, line in enumerate(traces)]
        self.instrument.accept(items, "test", written=set())
        if wait:
            self.instrument.wait_idle()

    def values(self) -> dict[str, float]:
        text = PrometheusExporter(self.instrument).render().decode()
        rows = re.findall(
            r"^((?:\w*_consistency_|ragmeter_embeddings)\S+)(?:.*)? (\S+)$", text, re.M
        )
        return {name: float(value) for name, value in rows}

    def outcomes(self) -> dict[str, float]:
        found = {}
        for name, value in self.values().items():
            if name.startswith("ragmeter_consistency_embeddings_total"):
                found[name.partition('"')[2].partition('"')[0]] = value
        return found

    def page(self) -> str:
        view = service_view(self.instrument, "bot")
        assert view is not None
        return service_page(view)

    def stop(self) -> None:
        stop_agent(self.instrument, 5)


def mean(values: dict[str, float]) -> float | None:
    return values.get('rag_consistency_embedding_mean{service="bot",window="1h"}')


def test_a_server_that_hangs_holds_up_nothing_and_what_waits_outlives_a_restart(
    tmp_path: Path,
) -> None:
    with stub_embeddings(**table()) as stub:
        stub.fault = "hang"
        agent = Agent(tmp_path, stub, live=True)
        try:
            agent.feed(lines(), wait=False)
            rouge = 'rag_consistency_rouge1_mean{service="bot",window="1h"}'
            until(lambda: agent.values().get(rouge))
            health = agent.instrument.health()
            assert health.ready
            assert health.pending == {"embedding": 18}
            assert agent.outcomes() == {}
            assert mean(agent.values()) is None
        finally:
            agent.stop()
        stub.fault = ""
        again = Agent(tmp_path, stub, live=True)
        try:
            again.instrument.wait_idle()
            assert again.outcomes() == {"embedded": 18}
            assert mean(again.values()) == pytest.approx(MEAN, abs=0.002)
        finally:
            again.stop()


def test_what_waits_when_embeddings_are_turned_off_is_counted_and_let_go(tmp_path: Path) -> None:
    with stub_embeddings() as stub:
        stub.fault = "hang"
        agent = Agent(tmp_path, stub, live=True)
        agent.feed(lines(), wait=False)
        until(lambda: agent.instrument.health().pending.get("embedding") == 18)
        agent.stop()
        off = Agent(tmp_path, None)
        try:
            off.instrument.wait_idle()
            assert off.outcomes() == {"not_configured": 18}
        finally:
            off.stop()


def test_beyond_the_room_live_answers_are_shed_and_counted(tmp_path: Path) -> None:
    with stub_embeddings() as stub:
        stub.fault = "hang"
        agent = Agent(tmp_path, stub, live=True, limits={"drawn": 4})
        try:
            agent.feed(lines(), wait=False)
            until(lambda: agent.outcomes().get("shed") == 14)
            assert agent.instrument.health().pending == {"embedding": 4}
        finally:
            agent.stop()
