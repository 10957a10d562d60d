"""Labels of a file beside the traces of a file, as `ragmeter score` joins them: no windows, no
horizon, every label that has a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.feedback.frames import Frame, Said, Word, by_rank, said_by, trace_key
from agent.feedback.labels import Feedback
from agent.labelling.placed import passage_keys
from agent.metrics.labelled.scores import label_scores, metric_names, results
from agent.tiers import Pair
from agent.trace import Score, Trace

__all__ = ["LabelsOfFile"]


class LabelsOfFile:
    """`used` counts the feedback that found its trace."""

    def __init__(self, feedback: Iterable[Feedback], ks: Sequence[int]) -> None:
        self._ks = sorted(set(ks))
        self._of: dict[bytes, list[tuple[str | None, str, Word]]] = {}
        self.number = self.used = 0
        scorers: set[str] = set()
        for item in feedback:
            word = said_by(item, item.timestamp.timestamp())
            row = (item.service, item.scorer, word)
            self._of.setdefault(trace_key(item.trace_id), []).append(row)
            scorers.add(item.scorer)
            self.number += 1
        self.pairs: list[Pair] = [
            (metric, scorer) for scorer in sorted(scorers) for metric in metric_names(self._ks)
        ]

    def scores(self, trace: Trace) -> list[Score]:
        """What the labels of this trace amount to, by each scorer that has labelled it."""
        rows = self._of.get(trace_key(trace.trace_id), ())
        keys = passage_keys(trace) if rows else None
        frame = Frame(trace.trace_id, trace.service, (), 0.0, trace.probability, keys)
        said: dict[str, Said] = {}
        for service, scorer, word in rows:
            if service in (None, trace.service):
                self.used += 1
                said[scorer] = said.get(scorer, Said()).heard(frame.about(word))
        return [score for name in sorted(said) for score in self._results(frame, name, said[name])]

    def _results(self, frame: Frame, scorer: str, said: Said) -> list[Score]:
        labels = said.labels()
        probability = frame.probability * (said.probability[1] if said.probability else 1.0)
        values = label_scores(by_rank(frame, labels), labels.answer, self._ks)
        return results(values.items(), scorer, probability)
