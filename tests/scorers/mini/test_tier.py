"""The tier of a model of tokens: its values, the spans in their details, which model is used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError
from ragmeter.config.settings import Settings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import ScoringCost, TierScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.scorers.mini import model as folders
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, Calibration, TokenRisk
from ragmeter.scorers.mini.tier import (
    MAX_GRADED,
    MAX_SPANS,
    LexicalFacts,
    combine,
    lexical_facts,
    unsupported_spans,
)
from ragmeter.scoring import slow_tiers

from tests.scorers.mini.folders import write_folder
from tests.tables import each_row
from tests.traces import make_trace

PASSAGES = [
    {"id": "a", "text": "It is free on Sundays. The museum opened in 1902 in Paris."},
    {"id": "b", "text": "Every day the museum is open in the morning."},
]

RECORD = '{"name": "Museum", "stars": 4, "hours": {"Monday": "9:0-17:0"}}'


def own(folder: Path, kind: str = "tokens", **manifest: Any) -> Settings:
    path = write_folder(folder, kind, **manifest)
    return load_settings(environ={}, overrides={"models": {"path": str(path)}})


def score(settings: Settings, metric: str = "grounding", **trace: Any) -> Score:
    async def main() -> list[Score]:
        tier = slow_tiers.ConfiguredTiers(settings).scorers["model"]
        cost = ScoringCost()
        async with tier:  # type: ignore[attr-defined]
            scores = await tier.score(make_trace(**{"passages": PASSAGES, **trace}), cost)
        assert cost.seconds >= 0
        return scores

    (found,) = [one for one in asyncio.run(main()) if one.metric == metric]
    return found


def test_the_words_that_nothing_supports_are_in_the_detail_with_the_nearest_evidence(
    tmp_path: Path,
) -> None:
    answer = "It is free on sundays . The museum opened in 1950 in rome ."
    found = score(own(tmp_path), answer=answer)
    assert (found.scorer, found.state) == ("tiny", ScoreState.SCORED)
    assert found.value is not None
    assert found.fingerprint
    detail = found.detail or {}
    assert detail["unsupported"] == 2
    spans = detail["unsupported_spans"]
    assert [span["text"] for span in spans] == ["1950", "rome"]
    assert answer[spans[0]["start"] : spans[0]["end"]] == "1950"
    assert spans[0]["evidence"]["passage_id"] == "a"
    assert spans[0]["evidence"]["text"] == "The museum opened in 1902 in Paris."
    text = PASSAGES[0]["text"]
    start, end = spans[0]["evidence"]["start"], spans[0]["evidence"]["end"]
    assert text[start:end] == spans[0]["evidence"]["text"]
    assert score(own(tmp_path), answer="it is free on sundays").value > found.value  # type: ignore[operator]


def test_the_embedded_model_gives_every_format_the_same_value() -> None:
    settings = load_settings(environ={}, overrides={"models": {"cpu_share": 0.1}})
    facts = ["The museum opened in 1902.", "Queen Victoria paid for it in Berlin.", "It is free."]
    forms = {
        "prose": " ".join(facts),
        "numbered, bold": "\n".join(f"{n}. **{one}**" for n, one in enumerate(facts, 1)),
        "bullets": "\n".join(f"- {one}" for one in facts),
        "table": "\n".join(
            ["| # | Fact |", "|---|---|", *(f"| {n} | {one} |" for n, one in enumerate(facts, 1))]
        ),
        "citations": " ".join(f"{one} [1]" for one in facts),
        "links": " ".join(f"{one} [1](https://a.example/1)" for one in facts),
    }
    found = {name: score(settings, answer=answer) for name, answer in forms.items()}
    prose = found["prose"].value or 0.0
    for name, other in found.items():
        assert other.value == pytest.approx(prose, abs=0.03), name
        spans = (other.detail or {})["unsupported_spans"]
        texts = {forms[name][span["start"] : span["end"]] for span in spans}
        assert any("Victoria" in text for text in texts), name


def test_words_of_an_answer_that_is_not_doubted_are_not_marked(tmp_path: Path) -> None:
    sure = own(tmp_path, calibration={"intercept": 9}, span_value=0.5)
    found = score(sure, answer="It is free on sundays . The museum opened in 1950 in rome .")
    assert found.value > 0.5  # type: ignore[operator]
    assert "unsupported" not in (found.detail or {})


def test_the_combination_with_the_lexical_score_is_that_of_the_manifest(tmp_path: Path) -> None:
    alone = own(tmp_path / "a", calibration={"model": 0, "lexical": 0, "intercept": 1})
    assert score(alone, answer="The museum opened in 1902").value == pytest.approx(0.7311, abs=1e-4)
    lexical = own(tmp_path / "b", calibration={"model": 0, "lexical": 1})
    good = score(lexical, answer="The museum opened in 1902 in Paris.")
    bad = score(lexical, answer="Queen Victoria paid for the museum in Berlin.")
    assert good.value > bad.value  # type: ignore[operator]
    assert "lexical" in (good.detail or {})


def test_the_level_is_that_of_the_kind_of_input() -> None:
    level = Calibration(
        model=0.5,
        lexical=0.25,
        contradicted=2,
        intercept=1,
        record=10,
        record_slope=3,
        several=20,
        short=40,
        text_slope=0.5,
    )
    facts = LexicalFacts(4.0, contradicted=0.5)
    assert combine(level, 2.0, facts) == 0.5 * (1 + 1 - 1) + 1
    assert combine(level, 2.0, facts._replace(several=1)) == 2 + 20
    assert combine(level, 2.0, facts._replace(short=0.25)) == (1 - 0.5 * 0.75) * 1 + 1 + 10
    assert combine(level, 2.0, facts._replace(short=1)) == 2 + 40
    assert combine(level, 2.0, facts._replace(record=1)) == 3 * 1 + 1 + 10


@each_row(
    ("texts", "answer", "kind"),
    [
        (["Open daily from nine."], "Open daily.", (False, False, 1.0)),
        (["Open daily from nine."], "It is open daily. " * 10, (False, False, 0.5)),
        (["Open daily from nine."], "It is open daily. " * 15, (False, False, 0.0)),
        (["Open daily from nine.", " "], "Open daily.", (False, False, 1.0)),
        (["Open daily.", "From nine."], "Open daily.", (False, True, 0.0)),
        ([RECORD], "Open on Monday.", (True, False, 0.0)),
        ([RECORD, "Open."], "Open.", (True, False, 0.0)),
    ],
)
def test_the_kind_of_input_is_read_from_the_trace(
    texts: list[str], answer: str, kind: tuple[bool, bool, float]
) -> None:
    passages = [{"id": f"p{n}", "text": text} for n, text in enumerate(texts)]
    facts = lexical_facts(make_trace(passages=passages, answer=answer))
    assert (facts.record, facts.several, facts.short) == kind


def test_numbers_that_change_places_contradict() -> None:
    text = (
        "The museum in Lyon opened to visitors in 1902. Some forty kilometres away, a rather small"
        " theatre stands; the theatre closed for good in 1950."
    )
    passages = [{"id": "p", "text": text}]
    true, false = (
        lexical_facts(make_trace(passages=passages, answer=answer))
        for answer in (
            "The museum opened in 1902 and the theatre closed in 1950.",
            "The museum opened in 1950 and the theatre closed in 1902.",
        )
    )
    assert false.contradicted > true.contradicted


def test_a_model_of_pairs_is_a_scorer_of_its_name(tmp_path: Path) -> None:
    found = score(own(tmp_path, "pairs"), answer="the museum opened in rome")
    assert (found.scorer, found.state) == ("tiny", ScoreState.SCORED)
    assert found.value == pytest.approx(0.018, abs=1e-3)


def test_a_model_of_pairs_reads_long_passages_in_windows_of_its_own_size(tmp_path: Path) -> None:
    settings = own(tmp_path, "pairs", window=256, chunk=64)
    filler = "It is free on sundays. " * 200
    passages = [{"id": "a", "text": f"{filler} The museum opened in rome. {filler}"}]
    found = score(settings, passages=passages, answer="the museum opened in rome")
    assert (found.state, (found.detail or {})["of"]) == (ScoreState.SCORED, 1)


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        ({"answer": "the museum " * 2_000}, ScoreState.UNSCORED, "too_long"),
        ({"passages": [{"id": "a", "text": "x" * 300_000}]}, ScoreState.UNSCORED, "too_long"),
        ({"answer": "I don't know."}, ScoreState.NOT_APPLICABLE, "no_answer"),
        ({"passages": []}, ScoreState.NOT_APPLICABLE, "no_passages"),
        ({"passages": None}, ScoreState.UNSCORED, "no_passages_captured"),
        ({"answer": "It was so."}, ScoreState.NOT_APPLICABLE, "no_claims"),
    ],
)
def test_there_is_no_value_without_what_it_needs(
    tmp_path: Path, change: dict[str, Any], state: ScoreState, reason: str
) -> None:
    found = score(own(tmp_path), **change)
    assert (found.state, found.reason, found.value) == (state, reason, None)


def test_details_are_bounded_and_follow_the_content_policy(tmp_path: Path) -> None:
    found = score(own(tmp_path), answer="the museum rome is free " * 400)
    spans = (found.detail or {})["unsupported_spans"]
    assert (len(spans), (found.detail or {})["unsupported"]) == (MAX_SPANS, 400)
    assert len(json.dumps(found.detail)) < 5_000
    settings = load_settings(environ={}, overrides={"privacy": {"content": "none"}})
    kept = ContentPolicy(settings.privacy).results([found.to_dict()])
    assert "rome" not in json.dumps(kept)
    assert "Paris" not in json.dumps(kept)


def test_spans_are_whole_words_and_join_over_spaces() -> None:
    answer = "Built by Victoria-Anne, in 1950!"
    marked = [(9, 12), (18, 19), (19, 22), (22, 23), (27, 29), (31, 32)]
    tokens = [TokenRisk(start, end, 1.0 + start) for start, end in marked]
    spans = unsupported_spans(answer, tokens, 0.5)
    assert [answer[s.start : s.end] for s in spans] == ["Victoria-Anne,", "1950!"]
    assert spans[0].risk == 23.0
    assert unsupported_spans(answer, tokens, 99) == []
    assert unsupported_spans("!!", [TokenRisk(0, 2, 1.0)], 0) == []


def test_marking_takes_no_longer_than_the_text_grows() -> None:
    answer = "館" * 20_000  # each a token, and no spaces
    tokens = [TokenRisk(at, at + 1, 1.0) for at in range(0, len(answer), 200)]
    spans = unsupported_spans(answer, tokens, 0.0)
    assert all(span.end - span.start <= 20_000 for span in spans)
    every = [TokenRisk(at, at + 1, 1.0) for at in range(len(answer))]
    assert unsupported_spans(answer, every, 0.0) == [TokenRisk(0, len(answer), 1.0)]


def test_the_embedded_model_is_used_where_no_other_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def pairs(**overrides: Any) -> list[tuple[str, str]]:
        settings = load_settings(environ={}, overrides={"models": {"cpu_share": 0.1}, **overrides})
        tier: TierScorer | None = slow_tiers.build_model_tier(settings)
        return list(tier.pairs) if tier is not None else []

    assert BUNDLED_FOLDER.is_dir()
    assert pairs() == [("grounding", "mini"), ("relevance", "mini")]
    assert pairs(models={"cpu_share": 0}) == []
    monkeypatch.setattr(folders, "find_spec", lambda name: None)
    assert pairs() == []
    assert "the package numpy is missing" in caplog.text


def test_the_tier_has_one_model() -> None:
    with pytest.raises(ConfigError, match="set one"):
        load_settings(environ={}, overrides={"hhem": {"path": "a"}, "models": {"path": "b"}})


def test_equal_texts_are_scored_once(tmp_path: Path) -> None:
    settings = own(tmp_path)
    text = "It opened in 1950 in rome ."

    async def main() -> list[tuple[Score, float]]:
        tier = slow_tiers.ConfiguredTiers(settings).scorers["model"]

        async def one(trace_id: str, answer: str = text) -> tuple[Score, float]:
            cost = ScoringCost()
            trace = make_trace(trace_id=trace_id, passages=PASSAGES, answer=answer)
            (result,) = await tier.score(trace, cost)
            return result, cost.seconds

        async with tier:  # type: ignore[attr-defined]
            results = list(await asyncio.gather(one("a"), one("b")))
            assert results[0][0].detail is not None
            results[0][0].detail["unsupported"] = "of one result alone"
            results += [await one("c"), await one("d", text.replace("1950", "1951"))]
        return results

    (first, paid), (second, joined), (third, again), (other, anew) = asyncio.run(main())
    assert first.value == second.value == third.value != other.value
    assert second.detail == third.detail != first.detail
    assert sorted((paid > 0, joined > 0)) == [False, True]
    assert again == 0 < anew


RULE = {"model": 1.0, "lexical": 1.0}
FIT = {"query": "When did the museum open in paris?", "answer": "I don't know."}


def test_relevance_is_the_mean_grade_of_passages_drawn_by_chance(tmp_path: Path) -> None:
    settings = own(tmp_path, relevance=RULE)
    found = score(settings, "relevance", **FIT)
    detail = found.detail or {}
    assert (found.scorer, found.state, set(detail["graded"])) == (
        "tiny",
        ScoreState.SCORED,
        {*"ab"},
    )
    assert found.value == pytest.approx(sum(detail["graded"].values()) / 2, abs=1e-3)
    assert detail["graded"]["a"] > detail["graded"]["b"]  # only the first one names Paris
    many = [{"id": str(n), "text": f"The museum has {n} rooms in paris."} for n in range(8)]
    many[3]["text"] = many[4]["text"] = " "
    drawn: list[str] = []
    for number in range(60):
        one = {"passages": many, "trace_id": f"t{number}", **FIT}
        graded = (score(settings, "relevance", **one).detail or {})["graded"]
        assert len(graded) == MAX_GRADED
        assert graded == (score(settings, "relevance", **one).detail or {})["graded"]
        drawn += graded
    counts = {name: drawn.count(name) for name in map(str, range(8))}
    assert counts["3"] == counts["4"] == 0
    assert min(count for name, count in counts.items() if name not in "34") >= 8  # 20 on average


def test_relevance_needs_a_rule_and_follows_it(tmp_path: Path) -> None:
    tier = slow_tiers.ConfiguredTiers(own(tmp_path / "a")).scorers["model"]
    assert list(tier.pairs) == [("grounding", "tiny")]
    level = own(tmp_path / "b", relevance={"model": 0, "intercept": 1})
    assert score(level, "relevance", **FIT).value == pytest.approx(3 * 0.7311, abs=1e-3)
    narrow = own(tmp_path / "c", window=96, chunk=16, overlap=60, relevance=RULE)
    long = [{"id": "a", "text": "the museum opened in paris in 1902 . " * 300}]
    wide = {**FIT, "query": "museum paris " * 900, "passages": long}
    assert score(narrow, "relevance", **wide).state == ScoreState.SCORED


@pytest.mark.parametrize(
    ("change", "state", "reason"),
    [
        ({"passages": [{"id": "a", "text": "x" * 300_000}]}, ScoreState.UNSCORED, "too_long"),
        ({"passages": []}, ScoreState.NOT_APPLICABLE, "no_passages"),
        ({"passages": None}, ScoreState.UNSCORED, "no_passages_captured"),
        ({"passages": [{"id": "a", "text": " "}]}, ScoreState.UNSCORED, "no_text"),
        ({"query": None}, ScoreState.UNSCORED, "no_query"),
        (
            {"query": "Wie hoch ist der Eiffelturm in Paris, und wann wurde er gebaut?"},
            ScoreState.NOT_APPLICABLE,
            "language",
        ),
    ],
)
def test_there_is_no_relevance_without_what_it_needs(
    tmp_path: Path, change: dict[str, Any], state: ScoreState, reason: str
) -> None:
    found = score(own(tmp_path, relevance=RULE), "relevance", **{**FIT, **change})
    assert (found.state, found.reason, found.value) == (state, reason, None)


def test_a_passage_is_compared_with_a_query_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    support = folders.TokenModel.support_query

    def count(self: folders.TokenModel, query: str, passage: str) -> float:
        calls.append(passage)
        return support(self, query, passage)

    monkeypatch.setattr(folders.TokenModel, "support_query", count)
    tier = slow_tiers.ConfiguredTiers(own(tmp_path, relevance=RULE)).scorers["model"]

    async def main() -> None:
        async with tier:  # type: ignore[attr-defined]
            for answer in ("It opened in 1902.", "It opened in 1950.", "I don't know."):
                trace = make_trace(passages=PASSAGES, query=FIT["query"], answer=answer)
                await tier.score(trace, ScoringCost())

    asyncio.run(main())
    assert sorted(calls) == sorted(one["text"] for one in PASSAGES)
