"""Feedback and answer comparison over a whole file, without windows, for `ragmeter score`.

Labels of a file beside the traces of a file, as `ragmeter score` joins them: no windows, no
horizon, every label that has a trace.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ragmeter.aggregate.consistency import Agreement, AnswerMemory
from ragmeter.aggregate.feedback_join import ranked_passage_keys
from ragmeter.aggregate.feedback_records import (
    FeedbackLabels,
    FeedbackTrace,
    ScorerFeedback,
    labels_at,
    labels_by_rank,
    trace_key,
)
from ragmeter.aggregate.wordings import WordingBuilder, embeds_answers, wording_mode
from ragmeter.config.settings import Settings
from ragmeter.core.feedback import Feedback
from ragmeter.core.score import Score
from ragmeter.core.tiers import MetricScorer
from ragmeter.core.vectors import AnswerVectors
from ragmeter.metrics.labelled import label_results, label_scores, labelled_metric_names
from ragmeter.trace import Trace

if TYPE_CHECKING:
    from ragmeter.scoring.answer_embedding import AnswerEmbedder


class FileFeedback:
    """`used` counts the feedback that found its trace."""

    def __init__(self, feedback: Iterable[Feedback], ks: Sequence[int]) -> None:
        self._ks = sorted(set(ks))
        self._of: dict[bytes, list[tuple[str | None, str, FeedbackLabels]]] = {}
        self.number = self.used = 0
        scorers: set[str] = set()
        for item in feedback:
            word = labels_at(item, item.timestamp.timestamp())
            row = (item.service, item.scorer, word)
            self._of.setdefault(trace_key(item.trace_id), []).append(row)
            scorers.add(item.scorer)
            self.number += 1
        self.pairs: list[MetricScorer] = [
            (metric, scorer)
            for scorer in sorted(scorers)
            for metric in labelled_metric_names(self._ks)
        ]

    def scores(self, trace: Trace) -> list[Score]:
        """What the labels of this trace amount to, by each scorer that has labelled it."""
        rows = self._of.get(trace_key(trace.trace_id), ())
        keys = ranked_passage_keys(trace) if rows else None
        frame = FeedbackTrace(trace.trace_id, trace.service, (), 0.0, trace.probability, keys)
        said: dict[str, ScorerFeedback] = {}
        for service, scorer, word in rows:
            if service in (None, trace.service):
                self.used += 1
                said[scorer] = said.get(scorer, ScorerFeedback()).add(frame.restrict(word))
        return [score for name in sorted(said) for score in self._results(frame, name, said[name])]

    def _results(self, frame: FeedbackTrace, scorer: str, said: ScorerFeedback) -> list[Score]:
        labels = said.labels()
        probability = frame.probability * (said.probability[1] if said.probability else 1.0)
        values = label_scores(labels_by_rank(frame, labels), labels.answer, self._ks)
        return label_results(values.items(), scorer, probability)


log = logging.getLogger("ragmeter.score")

_FILE = "file"


def open_answer_embedder(settings: Settings) -> AnswerEmbedder | None:
    """What the settings name, to be entered and left by the caller."""
    if settings.consistency.embeddings.base_url is None:
        return None
    from ragmeter.scoring.answer_embedding import build_answer_embedder  # late: few want it

    return build_answer_embedder(settings.consistency, settings.privacy)


class FileAnswers:
    """As in the agent, but that nothing grows old: so many questions, and four answers of each."""

    def __init__(self, settings: Settings, embedder: AnswerEmbedder | None) -> None:
        own = settings.consistency
        near = own.embeddings.near if embeds_answers(own, settings.privacy) else None
        mode = wording_mode(own, settings.privacy)
        least = settings.limits.min_samples
        self._memory = AnswerMemory(own.queries, {_FILE: math.inf}, least, mode, near)
        self._wordings = WordingBuilder(own, settings.privacy)
        self._embedder = embedder

    async def add(self, trace: Trace) -> AnswerVectors | str | None:
        """Remember the answer, before anything is waited for: in the order of the file. What came
        of its embedding; None where there was none to be made."""
        wording = self._wordings.of(trace, lambda query: self._memory.wants(trace.service, query))
        if isinstance(wording, str):
            return None
        at = trace.timestamp.timestamp()
        kept = self._memory.add(trace.service, wording, at, at) == "kept"
        if not kept or self._embedder is None:
            return None
        try:
            found = await self._embedder.embed(trace)
        except Exception:
            log.exception("the embedding of trace %r failed", trace.trace_id[:80])
            return "internal_error"
        if isinstance(found, AnswerVectors):
            context = self._wordings.context(trace)
            self._memory.embed(trace.service, wording, at, context, found)
        return found

    def lines(self) -> Iterator[str]:
        """For the terminal: of each service whose questions were asked again, each similarity."""
        for service in self._memory.services():
            for name, found in self._memory.agreement(service, _FILE).items():
                yield f"{service}: consistency_{name} {_format_agreement(found)}"


def _format_agreement(found: Agreement) -> str:
    parts = [f"{found.mean:.3f} ({found.lower:.3f} to {found.upper:.3f})"]
    if found.variance is not None:
        parts.append(f"variance {found.variance:.4f}")
    if found.variation is not None:
        parts.append(f"coefficient of variation {found.variation:.3f}")
    return f"{', '.join(parts)}, {found.queries:,} questions asked again"
