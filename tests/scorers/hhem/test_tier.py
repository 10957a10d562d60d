"""The model tier: which traces it scores, what its results carry, and what an error costs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.config.scoring import HhemSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import ScoringCost, TierScorer
from ragmeter.scorers.hhem import windowing
from ragmeter.scorers.hhem.model import HhemModel
from ragmeter.scorers.hhem.tier import FULLTEXT, HHEM, METRIC, HhemTier
from ragmeter.scorers.hhem.workers import WorkersClosed
from ragmeter.trace import Trace

from tests.tables import each_row
from tests.traces import make_trace
from tests.waiting import PATIENCE
from training.hhem.convert import convert_checkpoint

TINY = Path(__file__).parents[2] / "data" / "hhem-tiny"
FILLER = "The weather stayed dull over the northern hills for most of that week. "
GERMAN = (
    "Rechnungen kommen am ersten Tag des Monats, und wer sein Kennwort nicht mehr kennt, klickt auf"
    " der Anmeldeseite auf den Verweis und folgt den Schritten, die dann angezeigt werden."
)


class Fake(HhemModel):
    """Supports a sentence if the premise holds it word for word; a token is a word."""

    fingerprint = "0123456789ab"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.threads: set[str] = set()

    def encode(self, premise: str, hypothesis: str) -> list[int]:
        return [0] * (10 + self.count(premise) + self.count(hypothesis))

    def count(self, text: str) -> int:
        return len(text.split())

    def score(self, premise: str, hypothesis: str) -> float:
        self.asked.append((premise, hypothesis))
        self.threads.add(threading.current_thread().name)
        return 0.9 if hypothesis in premise else 0.1


def score(
    trace: Trace, model: HhemModel | None = None, cost: ScoringCost | None = None, **options: Any
) -> dict[str, Score]:
    async def main() -> list[Score]:
        settings = HhemSettings(fulltext=options.pop("fulltext", True))
        async with HhemTier(model or Fake(), settings, **options) as tier:
            return await asyncio.wait_for(tier.score(trace, cost or ScoringCost()), PATIENCE)

    found = asyncio.run(main())
    assert all(one.metric == METRIC for one in found)
    return {one.scorer: one for one in found}


def outcome(trace: Trace, model: HhemModel | None = None, **options: Any) -> set[tuple[str, str]]:
    """State and reason of every scorer."""
    found = score(trace, model, **options)
    assert found.keys() == {HHEM, FULLTEXT}
    assert all(one.value is None for one in found.values())
    return {(str(one.state), one.reason or "") for one in found.values()}


def test_it_is_a_tier() -> None:
    tier: TierScorer = HhemTier(Fake(), HhemSettings())
    assert (tier.tier, list(tier.pairs)) == ("model", [(METRIC, HHEM)])
    assert isinstance(tier, AbstractAsyncContextManager)
    whole = HhemTier(Fake(), HhemSettings(fulltext=True))
    assert list(whole.pairs) == [(METRIC, HHEM), (METRIC, FULLTEXT)]


def test_a_trace_gets_its_value_with_the_worst_sentence_and_its_passage() -> None:
    trace = make_trace(
        answer="Click Forgot password on the login page to reset it [1]. Invoices are free.",
        sampling={"probability": 0.5},
    )
    model = Fake()
    cost = ScoringCost()
    one = score(trace, model, cost, fulltext=False)[HHEM]
    assert one.state is ScoreState.SCORED
    assert one.value == pytest.approx(0.5)
    # the draw multiplies what was lost before: here it would count twice
    assert one.probability == 1.0
    assert one.fingerprint is not None
    assert len(one.fingerprint) == 12
    assert one.detail is not None
    worst = one.detail["worst_sentence"]
    assert (worst["index"], worst["text"]) == (1, "Invoices are free.")
    assert (worst["support"], worst["passage_id"]) == (0.1, "kb-2")
    assert one.detail["pairs"] == 2
    assert one.detail["unsupported"] == 1
    assert len(model.asked) == 2
    assert cost.seconds > 0
    assert (cost.requests, cost.usd) == (0, 0.0)


def test_all_of_the_models_work_is_done_by_the_workers() -> None:
    model = Fake()
    score(make_trace(), model)
    assert model.threads == {"ragmeter-model-0"}


def test_whole_text_is_one_pair_cut_where_the_reference_cuts_it() -> None:
    passages = [{"id": "a", "text": FILLER * 150}, {"id": "b", "text": "It is blue."}]
    model = Fake()
    found = score(make_trace(passages=passages, answer="It is blue."), model)
    (asked,) = [premise for premise, _ in model.asked if len(premise) == 8192]
    assert asked == f"{FILLER * 150} It is blue."[:8192]
    assert found[FULLTEXT].value == 0.1  # the fact is in what was cut off
    assert found[HHEM].value == 0.9
    length = len(FILLER) * 150 + 12
    shown = found[FULLTEXT].detail or {}
    assert (shown["characters"], shown["unread"]) == (length, length - 8192)
    assert found[FULLTEXT].fingerprint != found[HHEM].fingerprint


def test_padding_up_to_50_kb_turns_no_sentence() -> None:
    answer = "It is blue. It is green."
    for padding in ([FILLER * 700], [FILLER * 70] * 10):
        before = [{"id": f"x{n}", "text": f"{text} {n}"} for n, text in enumerate(padding)]
        passages = [*before, {"id": "b", "text": f"{FILLER * 3}It is blue. {FILLER * 3}"}]
        one = score(make_trace(passages=passages, answer=answer), fulltext=False)[HHEM]
        assert one.value == pytest.approx(0.5)
        assert one.detail is not None
        assert one.detail["worst_sentence"]["text"] == "It is green."
        (blue,) = [s for s in one.detail["sentences"] if s["from"] == 0]
        assert (blue["support"], blue["passage_id"]) == (0.9, "b")


@each_row(
    ("changes", "state", "reason"),
    [
        ({"status": "error"}, "not_applicable", "error"),
        ({"answer": None}, "unscored", "no_text"),
        ({"answer": None, "abstained": False}, "unscored", "no_text"),
        ({"answer": " "}, "not_applicable", "empty_answer"),
        ({"answer": "I don't know."}, "not_applicable", "no_answer"),
        ({"abstained": True}, "not_applicable", "no_answer"),
        ({"passages": None}, "unscored", "no_passages_captured"),
        ({"passages": []}, "not_applicable", "no_passages"),
        ({"passages": [{"id": "a"}, {"id": "b", "text": " "}]}, "unscored", "no_text"),
        ({"answer": "Нажмите на кнопку."}, "not_applicable", "language"),
        ({"passages": [{"id": "a", "text": "价格上涨。"}]}, "not_applicable", "language"),
        (
            {"answer": GERMAN[:40], "passages": [{"id": "a", "text": GERMAN}]},
            "not_applicable",
            "language",
        ),
    ],
)
def test_what_cannot_be_scored_says_why_and_asks_nothing(
    changes: dict[str, Any], state: str, reason: str
) -> None:
    model = Fake()
    assert outcome(make_trace(**changes), model) == {(state, reason)}
    assert model.asked == []


def test_an_answer_that_claims_nothing_has_no_grounding() -> None:
    one = score(make_trace(answer="It was so."), fulltext=False)[HHEM]
    assert (one.state, one.reason) == (ScoreState.NOT_APPLICABLE, "no_claims")


def test_a_refusal_that_goes_on_is_checked() -> None:
    answer = "I'm sorry, the documents do not say. However, " + "the login page is blue. " * 12
    assert score(make_trace(answer=answer))[HHEM].state is ScoreState.SCORED


def test_passages_without_text_are_named() -> None:
    passages = [{"id": "a", "text": "It is blue."}, {"id": "b"}]
    detail = score(make_trace(passages=passages, answer="It is blue."))[HHEM].detail
    assert detail is not None
    assert detail["passages_without_text"] == 1


def test_what_is_not_read_whole_is_too_long() -> None:
    found = score(make_trace(), max_pairs=2)
    assert (found[HHEM].state, found[HHEM].reason) == (ScoreState.UNSCORED, "too_long")
    assert found[FULLTEXT].state is ScoreState.SCORED
    answer = "word " * 5_000
    assert outcome(make_trace(answer=answer)) == {("unscored", "too_long")}


def test_whole_text_of_too_many_tokens_is_too_long() -> None:
    class Fine(Fake):
        def encode(self, premise: str, hypothesis: str) -> list[int]:
            return [0] * (10 + 2 * len(premise) + len(hypothesis))

    passages = [{"id": "a", "text": FILLER * 200}]
    found = score(make_trace(passages=passages), Fine())
    assert (found[FULLTEXT].state, found[FULLTEXT].reason) == (ScoreState.UNSCORED, "too_long")


class Broken(Fake):
    """Fails where the premise is longer than `at` characters."""

    def __init__(self, at: int, error: Exception | float) -> None:
        super().__init__()
        self.at = at
        self.error = error

    def score(self, premise: str, hypothesis: str) -> float:
        found = super().score(premise, hypothesis)
        if len(premise) < self.at:
            return found
        if isinstance(self.error, Exception):
            raise self.error
        return self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("secret text of the trace"), float("nan"), 1.5, MemoryError()]
)
def test_an_error_costs_its_own_metric_and_nothing_else(
    error: Exception | float, caplog: pytest.LogCaptureFixture
) -> None:
    passages = [{"id": "a", "text": FILLER}, {"id": "b", "text": FILLER + "It is blue."}]
    with caplog.at_level(logging.ERROR):
        trace = make_trace(passages=passages, answer="It is blue.")
        found = score(trace, Broken(len(FILLER) * 2, error))
    assert found[HHEM].state is ScoreState.SCORED
    assert (found[FULLTEXT].state, found[FULLTEXT].reason) == (ScoreState.UNSCORED, "model_error")
    assert "secret" not in caplog.text
    assert "hhem_fulltext failed on trace 't0'" in caplog.text
    assert outcome(make_trace(), Broken(0, error)) == {("unscored", "model_error")}


def test_a_tokenizer_that_fails_is_a_model_error() -> None:
    class Mute(Fake):
        def count(self, text: str) -> int:
            raise ValueError(text)

    found = score(make_trace(), Mute())
    assert (found[HHEM].state, found[HHEM].reason) == (ScoreState.UNSCORED, "model_error")


def test_a_mistake_of_ours_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowing, "conclude_grounding", lambda *_: 1 / 0)
    found = score(make_trace())
    assert (found[HHEM].state, found[HHEM].reason) == (ScoreState.UNSCORED, "internal_error")
    assert found[FULLTEXT].state is ScoreState.SCORED


def test_a_failing_trace_leaves_the_others_alone() -> None:
    async def main() -> None:
        async with HhemTier(Broken(400, RuntimeError()), HhemSettings(workers=2)) as tier:
            long = [{"id": "a", "text": FILLER * 6}]
            traces = [make_trace(n, **({"passages": long} if n % 3 else {})) for n in range(30)]
            found = await asyncio.gather(*(tier.score(trace, ScoringCost()) for trace in traces))
        for number, (one,) in enumerate(found):
            assert one.reason == ("model_error" if number % 3 else None)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_cancelled_trace_is_asked_about_no_more() -> None:
    async def main() -> None:
        model = Fake()
        begun = threading.Event()

        def slow(premise: str, hypothesis: str) -> float:
            begun.set()
            model.asked.append((premise, hypothesis))
            time.sleep(0.02)
            return 0.5

        model.score = slow  # type: ignore[method-assign]
        async with HhemTier(model, HhemSettings()) as tier:
            answer = " ".join(f"Claim {n} stands." for n in range(100))
            task = asyncio.create_task(tier.score(make_trace(answer=answer), ScoringCost()))
            await asyncio.to_thread(begun.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            asked = len(model.asked)
            await asyncio.sleep(0.1)
            assert len(model.asked) <= asked + 1 < 200

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_closed_tier_raises_and_gives_no_result() -> None:
    async def main() -> None:
        tier = HhemTier(Fake(), HhemSettings())
        async with tier:
            pass
        with pytest.raises(WorkersClosed):
            await tier.score(make_trace(), ScoringCost())

    asyncio.run(main())


def test_another_model_or_another_method_is_another_instrument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mark(model: Fake) -> str | None:
        return score(make_trace(), model)[HHEM].fingerprint

    other = Fake()
    other.fingerprint = "ba9876543210"
    first = mark(Fake())
    assert first == mark(Fake())
    assert first != mark(other)
    monkeypatch.setattr(windowing, "WINDOWING_VERSION", windowing.WINDOWING_VERSION + 1)
    assert first != mark(Fake())


# The real network's shape, tiny ------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> HhemModel:
    out = tmp_path_factory.mktemp("hhem")
    convert_checkpoint(TINY, out)
    return HhemModel(out)


def test_every_pair_fits_as_the_real_tokenizer_counts(tiny: HhemModel) -> None:
    def length(premise: str, hypothesis: str) -> int:
        return len(tiny.encode(premise, hypothesis))

    passages = [
        FILLER * 40,
        "naïve café № 5 ｆｕｌｌ </s> <pad> {text1} " * 60,
        "x" * 3_000,
        "a\n\n b",
    ]
    answer = f"It is blue. {'One, two, three, ' * 60}. It costs 5 € [1]."
    plan = windowing.plan_windows(answer, passages, tiny.count, length)
    assert len(plan.windows) > 5
    checks = plan.next_checks({})
    done: windowing.Supports = {check.hypothesis: {check.windows: 0.5} for check in checks}
    checks += plan.next_checks(done)
    assert len(checks) > 5
    for check in checks:
        assert check.tokens == length(check.premise, check.hypothesis) <= windowing.TOKEN_BUDGET


def test_the_tier_gives_what_the_network_gives(tiny: HhemModel) -> None:
    passages = [
        {"id": "a", "text": "It is blue like the sea."},
        {"id": "b", "text": "It was green once, and blue."},
        {"id": "c", "text": "It shares no word."},
    ]
    trace = make_trace(passages=passages, answer="The sky is blue [1]. It was green.")
    found = score(trace, tiny)
    texts = [passage["text"] for passage in passages]
    joint = "\n".join(texts[:2])
    best = max(tiny.score(text, "The sky is blue.") for text in texts[:2])
    blue = best if best >= 0.5 else max(best, tiny.score(joint, "The sky is blue."))
    green = tiny.score(texts[1], "It was green.")  # no other one has a word of it
    assert found[HHEM].value == pytest.approx((blue + green) / 2)
    assert found[FULLTEXT].value == tiny.score(" ".join(texts), trace.answer or "")


def test_padding_takes_no_support_away_in_the_network(tiny: HhemModel) -> None:
    """More windows can only add to the best one of a sentence."""
    passages = [{"id": "a", "text": "It is blue."}]
    padded = [{"id": "x", "text": FILLER * 100}, *passages]
    plain = score(make_trace(passages=passages, answer="It is blue."), tiny, fulltext=False)
    with_padding = score(make_trace(passages=padded, answer="It is blue."), tiny, fulltext=False)
    assert (with_padding[HHEM].value or 0) >= (plain[HHEM].value or 1)
