"""The judged metrics on a server that no one here wrote: each has a value that the judge gave, or
says why it has none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import NoScore, Score, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.registry import metric_specs
from ragmeter.scorers.judge.annotation import JudgeAnnotation, annotate_trace, annotation_question
from ragmeter.scorers.judge.calls import JudgeResult as AskedFor
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict
from ragmeter.trace import Trace

from tests.scorers.judge.real_server import KEY, LlamaServer, llama_server

pytestmark = pytest.mark.real

TOPICS = ("ports", "ferries", "lighthouses", "dykes", "canals", "tides")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with llama_server(tmp_path_factory.mktemp("llama")) as running:
        yield running


class Heard:
    """Asks the client and keeps what it said, by prompt: verdicts and reasons."""

    def __init__(self, client: JudgeClient) -> None:
        self.client = client
        self.verdicts: dict[str, list[Any]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.fingerprints: set[str] = set()

    async def ask(self, question: JudgeQuestion[Any], cost: ScoringCost) -> JudgeVerdict[Any]:
        name = question.prompt.partition("@")[0]
        try:
            verdict = await self.client.ask(question, cost)
        except JudgeFailed as failed:
            self.reasons.setdefault(name, []).append(failed.reason)
            raise
        self.verdicts.setdefault(name, []).append(verdict.value)
        self.fingerprints.add(verdict.fingerprint)
        return verdict


def trace(number: int, **changes: Any) -> Trace:
    topic = TOPICS[number % len(TOPICS)]
    passages = [
        {"id": f"p{rank}", "text": f"Report {number * 31 + rank} describes {topic} of the coast."}
        for rank in range(3)
    ]
    answer = f"The {topic} were built in year {1800 + number} [1]. They serve the coast [2][3]."
    given = {
        "trace_id": f"t{number}",
        "service": "docs",
        "timestamp": 1_760_000_000 + number,
        "query": f"What is known about {topic}, case {number}?",
        "passages": passages,
        "answer": answer,
    }
    return Trace.model_validate(given | changes)


def judged(
    base_url: str, traces: list[Trace], **judge: Any
) -> tuple[list[dict[str, Score]], list[Heard], list[ScoringCost]]:
    """The scores by metric, what was heard, and the cost, for each trace."""
    settings = JudgeSettings.model_validate(
        {"base_url": base_url, "model": "any", "api_key": KEY, "k": [3], "timeout_seconds": 60}
        | judge
    )

    async def scenario() -> tuple[list[dict[str, Score]], list[Heard], list[ScoringCost]]:
        client = JudgeClient(settings)
        heard = [Heard(client) for _ in traces]
        costs = [ScoringCost() for _ in traces]
        tiers = [JudgeTier(one, settings) for one in heard]
        found = await asyncio.gather(
            *(tier.score(one, cost) for tier, one, cost in zip(tiers, traces, costs, strict=True))
        )
        await client.aclose()
        for tier, scores in zip(tiers, found, strict=True):
            assert [(score.metric, score.scorer) for score in scores] == list(tier.pairs)
        return [{score.metric: score for score in scores} for scores in found], heard, costs

    return asyncio.run(scenario())


def check(score: Score, heard: Heard) -> None:
    """Scored within the metric's bounds by a judge that answered, or a reason in its place."""
    spec = metric_specs()[base_name(score.metric)]
    if score.state is ScoreState.SCORED:
        assert score.value is not None
        assert 0 <= score.value <= (spec.high or 1)
        assert score.fingerprint
    else:
        assert score.value is None
        assert score.reason
        if score.state is ScoreState.UNSCORED:
            assert any(score.reason in found for found in heard.reasons.values()), score


def test_every_metric_has_the_judges_value_or_a_reason(server: LlamaServer) -> None:
    """Grades and labels always come, as the grammar forces them; a list of nuggets, free text of a
    model that talks noise, may be empty or cut off."""
    traces = [trace(number) for number in range(12)]
    found, heard, costs = judged(server.base_url, traces, temperature=1.0)
    seen = Counter[tuple[str, str]]()
    for scores, reported, cost in zip(found, heard, costs, strict=True):
        for score in scores.values():
            check(score, reported)
            seen[base_name(score.metric), str(score.state)] += 1
        grades = reported.verdicts.get("umbrela", [])
        assert sorted(scores["relevance"].detail["grades"]) == sorted(grades)  # type: ignore[index]
        relevant = sum(grade >= 2 for grade in grades)
        assert scores["precision_at_k:3"].value == pytest.approx(relevant / 3)
        (attempt,) = reported.verdicts["attempted"]
        assert scores["answered"].value == float(attempt != "none")
        supports = reported.verdicts["citation-support"]
        assert scores["citation_precision"].value == pytest.approx(sum(supports) / 3)
        assert cost.requests >= 1 + 3 + 3
        assert cost.input_tokens > cost.output_tokens > 0
    values = {scores["precision_at_k:3"].value for scores in found}
    assert len(values) > 1, "the grades do not depend on the passages"
    assert seen["nugget_all", "scored"] > 0
    assert not any(state == "unscored" for name, state in seen if not name.startswith("nugget"))


def test_claims_facts_and_recall_are_written_by_their_schemas(server: LlamaServer) -> None:
    """Labels of given statements always come; lists of free text by a model that talks noise may
    be cut off, and then no number stands in their place."""
    reference = {"facts": ["The ports were built in 1801.", "They serve the coast."]}
    traces = [trace(1, reference=reference)]
    families = ["claims", "facts", "context", "context_recall"]
    found, heard, _ = judged(server.base_url, traces, metrics=families, temperature=1.0)
    for scores, reported in zip(found, heard, strict=True):
        for score in scores.values():
            check(score, reported)
        grades = reported.verdicts.get("umbrela", [])
        assert scores["context_relevancy"].value == pytest.approx(sum(grades) / 9)
        (held,) = reported.verdicts["context-recall"]
        assert scores["context_recall"].value == sum(held) / 2
        for answer in reported.verdicts.get("claims", []):
            most = answer.groundedness if answer.claims else -1
            assert (scores["groundedness_grade"].value or 0) <= max(most, 0)
            assert scores["correctness_grade"].value == answer.correctness


def test_noise_gives_no_metric_a_value(server: LlamaServer) -> None:
    found, heard, costs = judged(
        server.base_url, [trace(1)], structured="prompt", metrics=["relevance", "answered"]
    )
    assert not heard[0].verdicts
    for name, score in found[0].items():
        assert (score.state, score.reason) == (ScoreState.UNSCORED, "unparsable"), name
        assert score.value is None
    assert costs[0].output_tokens > 0


def test_a_passage_over_the_context_loses_what_rests_on_it_and_no_more(server: LlamaServer) -> None:
    normal = trace(2)
    passages = [passage.model_dump() for passage in normal.passages or []]
    passages[1]["text"] = "long " * 6_000
    ((scores,), (reported,), _) = judged(
        server.base_url, [trace(2, passages=passages)], metrics=["relevance", "answered"]
    )
    assert reported.reasons == {"umbrela": ["too_long"]}
    assert len(reported.verdicts["umbrela"]) == 2
    lost = scores["precision_at_k:3"]
    assert (lost.state, lost.reason, lost.value) == (ScoreState.UNSCORED, "too_long", None)
    detail = scores["relevance"].detail
    assert detail is not None
    assert detail["grades"][1] is None
    assert detail["missing"] == {"too_long": [1]}
    assert scores["answered"].state is ScoreState.SCORED


def test_a_server_that_is_gone_gives_no_metric_a_value(
    server: LlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.scorers.llm.admission.PATIENCE", 0.0)
    gone = server.base_url.replace(str(server.port), "9")  # the port of `discard`: no one listens
    found, heard, _ = judged(gone, [trace(n) for n in range(3)])
    for scores, reported in zip(found, heard, strict=True):
        assert not reported.verdicts
        for name, score in scores.items():
            assert score.state is ScoreState.UNSCORED, name
            assert score.reason in ("judge_error", "judge_unavailable"), name
            assert score.value is None


def test_a_whole_annotation_is_written_by_its_schema(server: LlamaServer) -> None:
    """The longest schema there is, nested: a server takes it, and what it writes by it is read, or
    contradicts itself, as a model of chance does."""
    settings = JudgeSettings.model_validate(
        {"base_url": server.base_url, "model": "any", "api_key": KEY, "timeout_seconds": 60}
    )
    client = JudgeClient(settings)
    cost = ScoringCost()

    async def scenario() -> tuple[list[Any], list[AskedFor[JudgeAnnotation]]]:
        texts = [f"Passage {number} on the tides of the coast." for number in range(6)]
        plain = replace(annotation_question("tides?", texts, "High [1]."), read=lambda reply: reply)
        try:
            forms = [(await client.ask(plain, cost)).value]
            tries = [annotate_trace(client, trace(number), cost) for number in range(6)]
            return forms, await asyncio.gather(*tries)
        finally:
            await client.aclose()

    (form,), found = asyncio.run(scenario())
    assert [len(labels) for labels in form["passages"].values()] == [3] * 6
    assert len(form["answer"]) == 10
    for one in found:
        if isinstance(one.value, NoScore):
            assert one.value == NoScore("unparsable")
        else:
            assert len(one.value.passages) == 3
