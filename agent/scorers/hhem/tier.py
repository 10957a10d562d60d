"""The model tier: grounding by HHEM, sentence by sentence and as the reference does it.

How the value is made is in `agent/scorers/hhem/windowing.py` and docs/grounding.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ragmeter.config.scoring import HhemSettings
from ragmeter.core.score import NoScore, Score, ScoreState, find_answer_reason
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.metrics import abstention as answers
from ragmeter.metrics.text import detect_script
from ragmeter.metrics.text_index import MAX_ANSWER
from ragmeter.scorers.hhem import windowing
from ragmeter.scorers.hhem.model import ModelError
from ragmeter.scorers.hhem.windowing import TextTooLong
from ragmeter.scorers.hhem.workers import AdmittedTrace, CpuTask, CpuWorkers, WorkersClosed
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.models")

METRIC = "grounding"
HHEM, FULLTEXT = "hhem", "hhem_fulltext"

_FULLTEXT_CHARS = 8192  # where the reference cuts the joined passages
# 8192 characters are 2,000 tokens as a rule; memory grows by 0.1 GB a thousand
_FULLTEXT_TOKENS = 10_000
# To plan for 50 kB takes 0.2 to 0.4 s, as long as a pair of 125 to 250 tokens.
_CHARS_PER_PLAN_WEIGHT = 250

T = TypeVar("T")


class PairScorer(Protocol):
    """What is needed of `ragmeter.scorers.hhem.model.Hhem`; called from several threads."""

    @property
    def fingerprint(self) -> str: ...

    def encode(self, premise: str, hypothesis: str) -> list[int]:
        """Token ids of the pair as it is scored, prompt included."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text by itself."""
        ...

    def score(self, premise: str, hypothesis: str) -> float:
        """The probability that the premise supports the hypothesis."""
        ...


def _texts(trace: Trace) -> list[str]:
    return [passage.text or "" for passage in trace.passages or ()]


def _texts_script(texts: Sequence[str]) -> str:
    return detect_script(" ".join([text[:100] for text in texts[:2]])) or detect_script(
        " ".join(texts)
    )


def _missing_reason(trace: Trace) -> NoScore | None:
    """Why the answer can't be held against its passages, as for the built-in grounding."""
    gap = find_answer_reason(trace, answers.answered_value(trace))
    if gap is not None:
        goes_on = trace.abstained is None and answers.has_further_claims(trace.answer or "")
        if gap.reason != "no_answer" or not goes_on:
            return gap
    if trace.passages is None:
        return NoScore("no_passages_captured")
    if not trace.passages:
        return NoScore("no_passages", applies=False)
    texts = _texts(trace)
    if trace.answer is None or not any(text and not text.isspace() for text in texts):
        return NoScore("no_text")
    if "other" in (detect_script(trace.answer), _texts_script(texts)):
        return NoScore("unsupported_language")
    # both together: an answer alone is often too short to tell
    if not answers.is_english(f"{trace.answer[:400]} {' '.join(texts)[:600]}"):
        return NoScore("unsupported_language")
    return None


def _call_model(call: Callable[..., T], *texts: str) -> T:
    """What the model says; whatever it raises is a `ModelError`, without the trace's text."""
    try:
        return call(*texts)
    except ModelError:
        raise
    except Exception as error:  # runtime and tokenizer share no base
        raise ModelError(f"{type(error).__name__} from the model") from error


class HhemTier:
    """Scores `grounding` by HHEM: scorer `hhem`, and `hhem_fulltext` where the settings want it.

    An async context manager that ends the workers' threads; they begin at the first trace.
    """

    def __init__(
        self,
        model: PairScorer,
        settings: HhemSettings,
        *,
        workers: CpuWorkers | None = None,
        max_pairs: int = windowing.MAX_PAIRS,
    ) -> None:
        self._model = model
        self._workers = workers or CpuWorkers(settings.workers)
        self._max_pairs = max_pairs
        self._fulltext = settings.fulltext
        method = f"windows {windowing.WINDOWING_VERSION} {windowing.TOKEN_BUDGET} {windowing.OVERLAP_TOKENS}"
        self._fingerprint = self._print(
            f"{method} {windowing.MAX_SENTENCE_TOKENS} {windowing.SUPPORTED_PROBABILITY}"
        )
        self._fulltext_print = self._print(f"fulltext {_FULLTEXT_CHARS}")

    def _print(self, method: str) -> str:
        text = f"{self._model.fingerprint} {method}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    async def __aenter__(self) -> HhemTier:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.close()

    @property
    def tier(self) -> Tier:
        return "model"

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        return [(METRIC, HHEM), *([(METRIC, FULLTEXT)] if self._fulltext else [])]

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """One result for each of `pairs`. `cost.seconds` are busy seconds of the workers."""
        gap = _missing_reason(trace)
        if gap is not None:
            return [self._missing(scorer, gap) for _, scorer in self.pairs]
        async with self._workers.turn() as turn:
            ways = [self._guarded(HHEM, trace, self._windows(turn, trace, cost))]
            if self._fulltext:
                ways.append(self._guarded(FULLTEXT, trace, self._whole(turn, trace, cost)))
            return list(await asyncio.gather(*ways))

    @staticmethod
    def _missing(scorer: str, gap: NoScore) -> Score:
        state = ScoreState.UNSCORED if gap.applies else ScoreState.NOT_APPLICABLE
        return Score(METRIC, scorer, state, reason=gap.reason)

    async def _guarded(self, scorer: str, trace: Trace, way: Awaitable[Score]) -> Score:
        try:
            return await way
        except TextTooLong:
            return self._missing(scorer, NoScore("too_long"))
        except ModelError as error:
            log.error("%s failed on trace %r: %.200s", scorer, trace.trace_id[:80], error)
            return self._missing(scorer, NoScore("model_error"))
        except WorkersClosed:
            raise
        except Exception:
            log.exception("%s failed on trace %r", scorer, trace.trace_id[:80])
            return self._missing(scorer, NoScore("internal_error"))

    def _scored(self, scorer: str, value: float, mark: str, detail: dict[str, Any]) -> Score:
        # the probability is that of the tier's draw, which is not known here
        return Score(METRIC, scorer, ScoreState.SCORED, value, detail=detail, fingerprint=mark)

    def _length(self, premise: str, hypothesis: str) -> int:
        return len(_call_model(self._model.encode, premise, hypothesis))

    def _support(self, premise: str, hypothesis: str) -> float:
        value = _call_model(self._model.score, premise, hypothesis)
        if not 0 <= value <= 1:
            raise ModelError("the model gave no probability")
        return value

    async def _ask(
        self, turn: AdmittedTrace, pairs: Sequence[windowing.WindowPair], cost: ScoringCost
    ) -> list[float]:
        tasks = [
            CpuTask(pair.tokens, partial(self._support, pair.premise, pair.hypothesis))
            for pair in pairs
        ]
        return await turn.run(tasks, cost)

    async def _windows(self, turn: AdmittedTrace, trace: Trace, cost: ScoringCost) -> Score:
        texts, answer = _texts(trace), trace.answer or ""
        prepare = partial(
            windowing.plan_windows,
            answer,
            texts,
            partial(_call_model, self._model.count),
            self._length,
            self._max_pairs,
        )
        size = sum(map(len, texts)) + len(answer)
        (plan,) = await turn.run([CpuTask(size / _CHARS_PER_PLAN_WEIGHT, prepare)], cost)
        if not plan.sentences:
            return self._missing(HHEM, NoScore("no_claims", applies=False))
        rows = plan.rows(await self._ask(turn, plan.pairs(), cost))
        looks = windowing.plan_joint_checks(plan, rows)
        values = await self._ask(turn, [look.pair for look in looks], cost)
        reading = windowing.conclude_grounding(plan, rows, looks, values)
        ids = [passage.id for passage in trace.passages or ()]
        detail = windowing.grounding_detail(reading, ids)
        empty = sum(not text or text.isspace() for text in texts)
        if empty:
            detail["passages_without_text"] = empty
        return self._scored(HHEM, reading.value, self._fingerprint, detail)

    async def _whole(self, turn: AdmittedTrace, trace: Trace, cost: ScoringCost) -> Score:
        """One pair: all passages in one text, cut where the reference cuts it, and the answer."""
        premise, answer = " ".join(_texts(trace)), trace.answer or ""
        if len(answer) > MAX_ANSWER:
            raise TextTooLong
        read = premise[:_FULLTEXT_CHARS]
        measure = partial(self._length, read, answer)
        weight = (len(read) + len(answer)) / _CHARS_PER_PLAN_WEIGHT
        (tokens,) = await turn.run([CpuTask(weight, measure)], cost)
        if tokens > _FULLTEXT_TOKENS:
            raise TextTooLong
        (value,) = await self._ask(turn, [windowing.WindowPair(read, answer, tokens)], cost)
        detail = {"tokens": tokens, "characters": len(premise)}
        if len(premise) > len(read):
            detail["unread"] = len(premise) - len(read)
        return self._scored(FULLTEXT, value, self._fulltext_print, detail)
