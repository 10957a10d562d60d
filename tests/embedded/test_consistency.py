"""Consistency in the running agent, and in a partition's state on Kafka."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.loader import load_settings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.score import HashedWording
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter.kafka.score_records import BadRecord, ScoreRecord, decode_score, encode_score
from ragmeter_exporters.page.rendering import service_page
from ragmeter_exporters.page.views import service_view
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.kafka.state.partition import apply, commit, record, reloaded, state_of
from tests.traces import START, make_trace, trace_line
from tests.waiting import stop_agent

ANSWERS = ("Unmistakable zebras sleep standing.", "Unmistakable zebras sleep standing.", "No idea.")


def lines() -> list[bytes]:
    """Six questions, each answered three times."""
    return [
        trace_line(
            10 * question + at, query=f"Quixotic question {question}?", answer=answer, passages=[],
            timestamp=START + at,
        )
        for at, answer in enumerate(ANSWERS)
        for question in range(6)
    ]  # fmt: skip


class Agent:
    def __init__(self, folder: Path, **changes: Any) -> None:
        self.settings = load_settings(
            environ={},
            overrides={
                "state": {"path": str(folder / "s"), "dead_letters": str(folder / "d")},
                "windows": ["1h"],
                **changes,
            },
        )
        self.instrument = EmbeddedAgent(self.settings, [], live=False)
        self.instrument.start()

    def feed(self, traces: list[bytes]) -> None:
        items = [(decode_trace(line, 2**20), at) for at, line in enumerate(traces)]
        self.instrument.accept(items, "test", written=set())
        self.instrument.wait_idle()

    def values(self) -> dict[str, float]:
        text = PrometheusExporter(self.instrument).render().decode()
        rows = re.findall(r"^(\w*_consistency_\S+)(?:.*)? (\S+)$", text, re.M)
        return {name: float(value) for name, value in rows}

    def page(self) -> str:
        view = service_view(self.instrument, "bot")
        assert view is not None
        return service_page(view)

    def stop(self) -> None:
        stop_agent(self.instrument, 20)


def mean(values: dict[str, float]) -> float:
    return values['rag_consistency_rouge1_mean{service="bot",window="1h"}']


def test_the_running_agent_compares_answers_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    try:
        agent.feed(lines())
        found = agent.values()
        assert mean(found) == pytest.approx(1 / 3), "one of three pairs is equal, two share nothing"
        compared = 'rag_consistency_queries{service="bot",window="1h",state="compared"}'
        assert found[compared] == 6
        assert found['ragmeter_consistency_answers_total{outcome="kept"}'] == 18
        assert "Answers to one question" in agent.page()
    finally:
        agent.stop()
    again = Agent(tmp_path)
    try:
        assert again.values() == found
        same = [
            trace_line(500 + at, query=f" quixotic QUESTION {at}", answer="No idea.")
            for at in range(6)
        ]
        again.feed(same)
        # of six pairs of an answer two are equal now
        assert mean(again.values()) == pytest.approx(2 / 6)
    finally:
        again.stop()


def test_no_text_of_an_answer_stays_where_none_may(tmp_path: Path) -> None:
    privacy = {"content": "hash", "hash_key": "k" * 32}
    agent = Agent(tmp_path, privacy=privacy)
    try:
        agent.feed(lines())
        assert mean(agent.values()) == pytest.approx(1 / 3)
    finally:
        agent.stop()
    for path in tmp_path.iterdir():
        data = path.read_bytes().lower()
        assert b"zebra" not in data, path
        assert b"quixotic" not in data, path


@pytest.mark.parametrize(
    "changes", [{"privacy": {"content": "none"}}, {"consistency": {"enabled": False}}]
)
def test_what_is_off_compares_nothing_and_lets_go_of_what_was_kept(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    first = Agent(tmp_path)
    first.feed(lines())
    first.stop()
    agent = Agent(tmp_path, **changes)
    try:
        agent.feed([trace_line(900, query="Quixotic question 1?", answer=ANSWERS[0])])
        names = {name.partition("{")[0] for name in agent.values()}
        assert names <= {"ragmeter_consistency_answers_total"}
        assert "Answers to one question" not in agent.page()
        kept = agent.instrument._store.meta()
        parts = [part for name, part in kept.items() if name.startswith("consistency.")]
        assert parts
        assert all(part["queries"] == {} for part in parts)
    finally:
        agent.stop()


def said(number: int, answer: str) -> ScoreRecord:
    found = record(number)
    wordings = WordingBuilder(ConsistencySettings(), PrivacySettings())
    wording = wordings.of(make_trace(1, query=f"q{number % 6}", answer=answer))
    assert isinstance(wording, HashedWording)
    found.scored = found.scored._replace(wording=wording)
    return found


def test_on_kafka_the_words_cross_the_topic_and_are_kept_by_the_partition() -> None:
    records = [said(number, ANSWERS[number // 6]) for number in range(18)]
    for one in records:
        assert decode_score(encode_score(one)) == one
    state = state_of()
    apply(state, [decode_score(encode_score(one)) for one in records])
    again = reloaded(commit(state, {}))
    agreed = again.aggregator.consistency.compared("bot", "1h")
    assert (agreed.single, agreed.several) == (0, 6)
    assert agreed.by["rouge1"].mean == pytest.approx(1 / 3)
    assert agreed == state.aggregator.consistency.compared("bot", "1h")


@pytest.mark.parametrize(
    "wording",
    [
        HashedWording("zz", "AAAA"),
        HashedWording("0" * 32, "A" * 2000),
        HashedWording("0" * 32, "A"),
        "x" * 500,
    ],
)
def test_a_record_with_another_wording_is_refused(wording: HashedWording | str) -> None:
    one = record(1)
    hashed = isinstance(wording, HashedWording)
    fields: dict[str, Any] = {"wording": wording} if hashed else {"wording_reason": wording}
    with pytest.raises(BadRecord):
        encode_score(replace(one, scored=one.scored._replace(**fields)))
