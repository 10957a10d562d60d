"""The `model` tier: grounding by HHEM, sentence by sentence, and as the reference does it.

How the value is made is in `agent/metrics/windowed.py` and docs/grounding.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from agent.config import Hhem as HhemSettings
from agent.metrics import answered as answers
from agent.metrics import windowed
from agent.metrics.cutting import TooLong
from agent.metrics.evidence import MAX_ANSWER
from agent.metrics.results import Gap, hindrance
from agent.metrics.words import script
from agent.models.errors import ModelError
from agent.models.workers import Closed, Task, Turn, Workers
from agent.tiers import Cost, Pair, Tier
from agent.trace import Score, State, Trace

__all__ = ["FULLTEXT", "HHEM", "METRIC", "HhemTier", "PairScorer"]

log = logging.getLogger("ragmeter.models")

METRIC = "grounding"
HHEM, FULLTEXT = "hhem", "hhem_fulltext"

FULLTEXT_CHARS = 8192  # where the reference cuts the joined passages
# 8192 characters are 2,000 tokens as a rule; memory grows by 0.1 GB a thousand
FULLTEXT_TOKENS = 10_000
# To plan for 50 kB takes 0.2 to 0.4 s, as long as a pair of 125 to 250 tokens.
CHARS_PER_PLAN_WEIGHT = 250

T = TypeVar("T")


class PairScorer(Protocol):
    """What is needed of `agent.models.hhem.Hhem`; called from several threads."""

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


def _script(texts: Sequence[str]) -> str:
    return script(" ".join([text[:100] for text in texts[:2]])) or script(" ".join(texts))


def _gap(trace: Trace) -> Gap | None:
    """Why the answer can't be held against its passages, as for the built-in grounding."""
    gap = hindrance(trace, answers.verdict(trace))
    if gap is not None:
        goes_on = trace.abstained is None and answers.claims_more(trace.answer or "")
        if gap.reason != "no_answer" or not goes_on:
            return gap
    if trace.passages is None:
        return Gap("no_passages_captured")
    if not trace.passages:
        return Gap("no_passages", applies=False)
    texts = _texts(trace)
    if trace.answer is None or not any(text and not text.isspace() for text in texts):
        return Gap("no_text")
    if "other" in (script(trace.answer), _script(texts)):
        return Gap("unsupported_language")
    # both together: an answer alone is often too short to tell
    if not answers.is_english(f"{trace.answer[:400]} {' '.join(texts)[:600]}"):
        return Gap("unsupported_language")
    return None


def _asked(call: Callable[..., T], *texts: str) -> T:
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
        workers: Workers | None = None,
        max_pairs: int = windowed.MAX_PAIRS,
    ) -> None:
        self._model = model
        self._workers = workers or Workers(settings.workers)
        self._max_pairs = max_pairs
        self._fulltext = settings.fulltext
        method = f"windows {windowed.VERSION} {windowed.BUDGET} {windowed.OVERLAP}"
        self._fingerprint = self._print(f"{method} {windowed.SENTENCE} {windowed.SUPPORTED}")
        self._fulltext_print = self._print(f"fulltext {FULLTEXT_CHARS}")

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
    def pairs(self) -> Sequence[Pair]:
        return [(METRIC, HHEM), *([(METRIC, FULLTEXT)] if self._fulltext else [])]

    async def score(self, trace: Trace, cost: Cost) -> list[Score]:
        """One result for each of `pairs`. `cost.seconds` are busy seconds of the workers."""
        gap = _gap(trace)
        if gap is not None:
            return [self._missing(scorer, gap) for _, scorer in self.pairs]
        async with self._workers.turn() as turn:
            ways = [self._guarded(HHEM, trace, self._windows(turn, trace, cost))]
            if self._fulltext:
                ways.append(self._guarded(FULLTEXT, trace, self._whole(turn, trace, cost)))
            return list(await asyncio.gather(*ways))

    @staticmethod
    def _missing(scorer: str, gap: Gap) -> Score:
        state = State.UNSCORED if gap.applies else State.NOT_APPLICABLE
        return Score(METRIC, scorer, state, reason=gap.reason)

    async def _guarded(self, scorer: str, trace: Trace, way: Awaitable[Score]) -> Score:
        try:
            return await way
        except TooLong:
            return self._missing(scorer, Gap("too_long"))
        except ModelError as error:
            log.error("%s failed on trace %r: %.200s", scorer, trace.trace_id[:80], error)
            return self._missing(scorer, Gap("model_error"))
        except Closed:
            raise
        except Exception:
            log.exception("%s failed on trace %r", scorer, trace.trace_id[:80])
            return self._missing(scorer, Gap("internal_error"))

    def _scored(self, scorer: str, value: float, mark: str, detail: dict[str, Any]) -> Score:
        # the probability is that of the tier's draw, which is not known here
        return Score(METRIC, scorer, State.SCORED, value, detail=detail, fingerprint=mark)

    def _length(self, premise: str, hypothesis: str) -> int:
        return len(_asked(self._model.encode, premise, hypothesis))

    def _support(self, premise: str, hypothesis: str) -> float:
        value = _asked(self._model.score, premise, hypothesis)
        if not 0 <= value <= 1:
            raise ModelError("the model gave no probability")
        return value

    async def _ask(self, turn: Turn, pairs: Sequence[windowed.Pair], cost: Cost) -> list[float]:
        tasks = [
            Task(pair.tokens, partial(self._support, pair.premise, pair.hypothesis))
            for pair in pairs
        ]
        return await turn.run(tasks, cost)

    async def _windows(self, turn: Turn, trace: Trace, cost: Cost) -> Score:
        texts, answer = _texts(trace), trace.answer or ""
        prepare = partial(
            windowed.make_plan,
            answer,
            texts,
            partial(_asked, self._model.count),
            self._length,
            self._max_pairs,
        )
        size = sum(map(len, texts)) + len(answer)
        (plan,) = await turn.run([Task(size / CHARS_PER_PLAN_WEIGHT, prepare)], cost)
        if not plan.sentences:
            return self._missing(HHEM, Gap("no_claims", applies=False))
        rows = plan.rows(await self._ask(turn, plan.pairs(), cost))
        looks = windowed.joints(plan, rows)
        values = await self._ask(turn, [look.pair for look in looks], cost)
        reading = windowed.conclude(plan, rows, looks, values)
        ids = [passage.id for passage in trace.passages or ()]
        detail = windowed.detail(reading, ids)
        empty = sum(not text or text.isspace() for text in texts)
        if empty:
            detail["passages_without_text"] = empty
        return self._scored(HHEM, reading.value, self._fingerprint, detail)

    async def _whole(self, turn: Turn, trace: Trace, cost: Cost) -> Score:
        """One pair: all passages in one text, cut where the reference cuts it, and the answer."""
        premise, answer = " ".join(_texts(trace)), trace.answer or ""
        if len(answer) > MAX_ANSWER:
            raise TooLong
        read = premise[:FULLTEXT_CHARS]
        measure = partial(self._length, read, answer)
        weight = (len(read) + len(answer)) / CHARS_PER_PLAN_WEIGHT
        (tokens,) = await turn.run([Task(weight, measure)], cost)
        if tokens > FULLTEXT_TOKENS:
            raise TooLong
        (value,) = await self._ask(turn, [windowed.Pair(read, answer, tokens)], cost)
        detail = {"tokens": tokens, "characters": len(premise)}
        if len(premise) > len(read):
            detail["unread"] = len(premise) - len(read)
        return self._scored(FULLTEXT, value, self._fulltext_print, detail)
