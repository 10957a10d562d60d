"""The model tier: grounding by HHEM, sentence by sentence and as the reference does it.

`ragmeter.scorers.hhem.windowing` and docs/grounding.md say how the value is made.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ragmeter.config.scoring import HhemSettings
from ragmeter.core.errors import RagmeterError
from ragmeter.core.score import NoScore, Score, ScoreState, find_answer_reason
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.metrics import abstention
from ragmeter.metrics.answer_text import MAX_ANSWER
from ragmeter.metrics.language import find_language_reason
from ragmeter.reasons import Reason
from ragmeter.scorers.hhem import windowing
from ragmeter.scorers.hhem.model import HhemModel, InferenceFailed, ModelError
from ragmeter.scorers.hhem.windowing import TextTooLong
from ragmeter.scorers.hhem.workers import AdmittedTrace, CpuTask, CpuWorkers, WorkersClosed
from ragmeter.trace import Trace

if TYPE_CHECKING:
    from ragmeter.scorers.mini.model import PairModel

log = logging.getLogger(__name__)

METRIC = "grounding"
HHEM = "hhem"
FULLTEXT = "hhem_fulltext"

_FULLTEXT_CHARS = 8192  # where the reference cuts the joined passages
# 8192 characters are 2,000 tokens as a rule; memory grows by 0.1 GB a thousand
_FULLTEXT_TOKENS = 10_000
# To plan for 50 kB takes 0.2 to 0.4 s, as long as a pair of 125 to 250 tokens.
_CHARS_PER_PLAN_WEIGHT = 250

T = TypeVar("T")
Finding = tuple[float, dict[str, Any]] | NoScore


class LocalModelTier(ABC):
    """Scores `grounding` by a model in threads of this process; the base of the tiers with one.

    An async context manager that ends the workers' threads; they begin at the first trace.
    """

    tier: Tier = "model"

    def __init__(self, workers: CpuWorkers, fingerprints: Mapping[MetricScorer, str]) -> None:
        self._workers = workers
        self._fingerprints = fingerprints

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._workers.close()

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        """The (metric, scorer) pairs that every trace gets a result for."""
        return list(self._fingerprints)

    @abstractmethod
    def _score_pair(
        self, pair: MetricScorer, turn: AdmittedTrace, trace: Trace, cost: ScoringCost
    ) -> Awaitable[Finding]:
        """Return what finds the value and detail of one of `pairs`."""

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Return one result for each of `pairs`; `cost` grows by the workers' busy seconds."""
        reason = find_missing_reason(trace)
        scores = [_missing(pair, reason) for pair in self.pairs if reason and pair[0] == METRIC]
        if len(scores) < len(self.pairs):
            wanted = [pair for pair in self.pairs if not reason or pair[0] != METRIC]
            async with self._workers.turn() as turn:
                runs = [(pair, self._score_pair(pair, turn, trace, cost)) for pair in wanted]
                scores += await asyncio.gather(*[self._guarded(p, trace, run) for p, run in runs])
        return scores

    async def _guarded(self, pair: MetricScorer, trace: Trace, run: Awaitable[Finding]) -> Score:
        try:
            result = await run
            if isinstance(result, NoScore):
                return _missing(pair, result)
            # the probability is that of the tier's draw, which is not known here
            return Score(
                *pair,
                ScoreState.SCORED,
                result[0],
                detail=result[1],
                fingerprint=self._fingerprints[pair],
            )
        except TextTooLong:
            return _missing(pair, NoScore(Reason.TOO_LONG))
        except (ModelError, InferenceFailed) as error:
            log.error("%s failed on trace %r: %.200s", pair[1], trace.trace_id[:80], error)
            return _missing(pair, NoScore(Reason.MODEL_ERROR))
        except WorkersClosed:
            raise
        except Exception:
            log.exception("%s failed on trace %r", pair[1], trace.trace_id[:80])
            return _missing(pair, NoScore(Reason.INTERNAL_ERROR))


class HhemTier(LocalModelTier):
    """Scores by a model of pairs: HHEM, or a user's own (`scorer`).

    There is also the scorer `hhem_fulltext` where the settings of HHEM want it.

    Args:
        model: Model that scores pairs; several threads call it.
        budget: Tokens of a pair.
        workers: Threads; None: as many as the settings say.
    """

    def __init__(
        self,
        model: HhemModel | PairModel,
        settings: HhemSettings,
        *,
        scorer: str = HHEM,
        budget: int = windowing.TOKEN_BUDGET,
        workers: CpuWorkers | None = None,
        max_pairs: int = windowing.MAX_PAIRS,
    ) -> None:
        self._model = model
        self._max_pairs = max_pairs
        self._budget = budget
        methods = {
            scorer: f"windows {windowing.WINDOWING_VERSION} {budget}"
            f" {windowing.OVERLAP_TOKENS} {windowing.MAX_SENTENCE_TOKENS}"
            f" {windowing.SUPPORTED_PROBABILITY} {windowing.MAX_WINDOWS}"
        }
        if settings.fulltext:
            methods[FULLTEXT] = f"fulltext {_FULLTEXT_CHARS}"
        fingerprints = {
            (METRIC, scorer): hashlib.sha256(f"{model.fingerprint} {method}".encode()).hexdigest()[
                :12
            ]
            for scorer, method in methods.items()
        }
        super().__init__(workers or CpuWorkers(settings.workers), fingerprints)

    def _score_pair(
        self, pair: MetricScorer, turn: AdmittedTrace, trace: Trace, cost: ScoringCost
    ) -> Awaitable[Finding]:
        score = self._score_fulltext if pair[1] == FULLTEXT else self._score_windows
        return score(turn, trace, cost)

    def _length(self, premise: str, hypothesis: str) -> int:
        return len(call_model(self._model.encode, premise, hypothesis))

    def _support(self, premise: str, hypothesis: str) -> float:
        value = call_model(self._model.score, premise, hypothesis)
        if not 0 <= value <= 1:
            raise InferenceFailed("the model gave no probability")
        return value

    async def _score_windows(self, turn: AdmittedTrace, trace: Trace, cost: ScoringCost) -> Finding:
        texts = passage_texts(trace)
        answer = trace.answer or ""
        count = partial(call_model, self._model.count)
        bounds = (self._max_pairs, self._budget)
        prepare = partial(windowing.plan_windows, answer, texts, count, self._length, *bounds)
        weight = (sum(map(len, texts)) + len(answer)) / _CHARS_PER_PLAN_WEIGHT
        (plan,) = await turn.run([CpuTask(weight, prepare)], cost)
        if not plan.sentences:
            return NoScore(Reason.NO_CLAIMS, applies=False)
        supports: windowing.Supports = {}
        while checks := plan.next_checks(supports):
            tasks = [
                CpuTask(check.tokens, partial(self._support, check.premise, check.hypothesis))
                for check in checks
            ]
            for check, value in zip(checks, await turn.run(tasks, cost), strict=True):
                supports.setdefault(check.hypothesis, {})[check.windows] = value
        grounding = windowing.conclude_grounding(plan, supports)
        ids = [passage.id for passage in trace.passages or ()]
        detail = windowing.grounding_detail(grounding, ids)
        if blank := sum(not text or text.isspace() for text in texts):
            detail["passages_without_text"] = blank
        return grounding.value, detail

    async def _score_fulltext(
        self, turn: AdmittedTrace, trace: Trace, cost: ScoringCost
    ) -> tuple[float, dict[str, Any]]:
        """Score one pair: the passages as one text, cut as in the reference, and the answer."""
        premise = " ".join(passage_texts(trace))
        answer = trace.answer or ""
        if len(answer) > MAX_ANSWER:
            raise TextTooLong
        cut = premise[:_FULLTEXT_CHARS]
        weight = (len(cut) + len(answer)) / _CHARS_PER_PLAN_WEIGHT
        (tokens,) = await turn.run([CpuTask(weight, partial(self._length, cut, answer))], cost)
        if tokens > _FULLTEXT_TOKENS:
            raise TextTooLong
        (value,) = await turn.run([CpuTask(tokens, partial(self._support, cut, answer))], cost)
        detail = {"tokens": tokens, "characters": len(premise)}
        if len(premise) > len(cut):
            detail["unread"] = len(premise) - len(cut)
        return value, detail


def passage_texts(trace: Trace) -> list[str]:
    """Return the texts of the passages, empty where there is none."""
    return [passage.text or "" for passage in trace.passages or ()]


def find_missing_reason(trace: Trace) -> NoScore | None:
    """Why the answer can't be held against its passages, as for the built-in grounding."""
    reason = find_answer_reason(trace, abstention.answered_value(trace))
    if reason is not None:
        goes_on = trace.abstained is None and abstention.has_further_claims(trace.answer or "")
        if reason.reason != Reason.NO_ANSWER or not goes_on:
            return reason
    if trace.passages is None:
        return NoScore(Reason.NO_PASSAGES_CAPTURED)
    if not trace.passages:
        return NoScore(Reason.NO_PASSAGES, applies=False)
    texts = passage_texts(trace)
    if trace.answer is None or not any(text and not text.isspace() for text in texts):
        return NoScore(Reason.NO_TEXT)
    return find_language_reason(trace)


def call_model(call: Callable[..., T], *arguments: Any) -> T:
    """Call the model; an error that is none of ours becomes one, without the trace's text."""
    try:
        return call(*arguments)
    except RagmeterError:
        raise
    except Exception as error:  # runtime and tokenizer share no base
        raise InferenceFailed(f"{type(error).__name__} from the model") from error


def _missing(pair: MetricScorer, reason: NoScore) -> Score:
    state = ScoreState.UNSCORED if reason.applies else ScoreState.NOT_APPLICABLE
    return Score(*pair, state, reason=reason.reason)
