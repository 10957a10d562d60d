"""Our side of `benchmarks.judge`: traces through tier, memory of verdicts and client, measured."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.cited_statements import CITATION_METRICS as CITED
from ragmeter.metrics.nuggets import NUGGET_METRICS as NUGGETS
from ragmeter.scorers.judge.cache import VERDICT_DAYS, CachedJudge, SqliteVerdictStore
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict
from ragmeter.store.state_file import open_state
from ragmeter.trace import Trace

from benchmarks.judge_workload import Workload

__all__ = ["Observed", "depth", "judge", "traces"]

PROMPTS = {
    "umbrela": "relevance",
    "citation-support": "citations",
    "attempted": "answered",
}  # all others: nuggets


@dataclass
class Observed:
    """Of one run: the scores of each trace, seconds of each, families with a call that failed for
    good, and the stretches of time in which calls were in flight, by trace."""

    scores: list[list[Score]] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    broken: list[set[str]] = field(default_factory=list)
    calls: list[list[tuple[float, float]]] = field(default_factory=list)
    requests: int = 0
    wall: float = 0.0
    cpu: float = 0.0

    def lost(self) -> tuple[int, int, int]:
        """(unscored metrics, those of a family none of whose calls failed, all metrics)."""
        lost = beside = total = 0
        for scores, broken in zip(self.scores, self.broken, strict=True):
            for score in scores:
                total += 1
                if score.state is ScoreState.UNSCORED:
                    lost += 1
                    beside += family_of(score) not in broken
        return lost, beside, total


def family_of(score: Score) -> str:
    if score.metric == "answered":
        return "answered"
    if score.metric in CITED:
        return "citations"
    return "nuggets" if score.metric in NUGGETS else "relevance"


def traces(queries: Workload) -> list[Trace]:
    """The queries as traces, citations as markers in the answer."""
    out = []
    for query in queries:
        parts = [
            part["text"].removesuffix(".") + "".join(f" [{rank}]" for rank in part["cites"]) + "."
            for part in query["parts"]
        ]
        passages = [{"id": str(rank), "text": t} for rank, t in enumerate(query["passages"], 1)]
        given = {
            "trace_id": query["id"],
            "service": "bench",
            "timestamp": 1_760_000_000,
            "query": query["query"],
            "passages": passages,
            "answer": " ".join(parts),
        }
        out.append(Trace.model_validate(given))
    return out


def depth(calls: Sequence[tuple[float, float]]) -> int:
    """Round trips in sequence: the most calls of which each began after the one before ended."""
    found = 0
    ended = float("-inf")
    for begin, end in sorted(calls, key=lambda call: call[1]):
        if begin >= ended:
            found += 1
            ended = end
    return found


class _Watched:
    """Asks the memory and notes each question, for one trace."""

    def __init__(self, asking: CachedJudge) -> None:
        self._asking = asking
        self.broken: set[str] = set()
        self.calls: list[tuple[float, float]] = []

    async def ask(self, question: JudgeQuestion[Any], cost: ScoringCost) -> JudgeVerdict[Any]:
        begin = time.perf_counter()
        try:
            return await self._asking.ask(question, cost)
        except JudgeFailed:
            self.broken.add(PROMPTS.get(question.prompt.partition("@")[0], "nuggets"))
            raise
        finally:
            self.calls.append((begin, time.perf_counter()))


def judge(
    rounds: Sequence[Sequence[Trace]],
    base_url: str,
    *,
    side_by_side: bool,
    concurrency: int | None = None,
) -> list[Observed]:
    """One `Observed` for each round of traces, by one client and one memory in a state file.

    The first trace of the first round warms the client up and is not measured. Times are of the
    scoring alone, CPU seconds of the whole process.
    """
    settings = JudgeSettings(base_url=base_url, model="stub")
    if concurrency is not None:
        settings = settings.model_copy(update={"concurrency": concurrency})

    async def scenario(path: Path) -> list[Observed]:
        connection, _ = open_state(path, "normal", print)
        store = SqliteVerdictStore(path, settings.cache.entries, VERDICT_DAYS)
        client = JudgeClient(settings)
        asking = CachedJudge(client, store)
        try:
            first, *rest = rounds[0]
            await JudgeTier(asking, settings).score(first, ScoringCost())
            return [
                await _round(asking, settings, batch, side_by_side) for batch in [rest, *rounds[1:]]
            ]
        finally:
            await client.aclose()
            store.close()
            connection.close()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(scenario(Path(folder) / "state.sqlite"))


async def _round(
    asking: CachedJudge, settings: JudgeSettings, batch: Sequence[Trace], side_by_side: bool
) -> Observed:
    out = Observed()
    cost = ScoringCost()
    watched = [_Watched(asking) for _ in batch]

    async def one(trace: Trace, ask: _Watched) -> list[Score]:
        begin = time.perf_counter()
        scores = await JudgeTier(ask, settings).score(trace, cost)
        out.walls.append(time.perf_counter() - begin)
        return scores

    cpu = time.process_time()
    begin = time.perf_counter()
    runs = [one(trace, ask) for trace, ask in zip(batch, watched, strict=True)]
    out.scores = list(await asyncio.gather(*runs)) if side_by_side else [await run for run in runs]
    out.wall = time.perf_counter() - begin
    out.cpu = time.process_time() - cpu
    out.requests = cost.requests
    out.broken = [ask.broken for ask in watched]
    out.calls = [ask.calls for ask in watched]
    return out
