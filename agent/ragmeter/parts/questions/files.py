"""The eight questions of scored traces in a file, which all have one time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragmeter.core.score import ScoredTrace
from ragmeter.parts.contract import Arrival, ScoredBatch
from ragmeter.parts.questions.answers import AskedService, answer_file
from ragmeter.parts.questions.settings import QuestionsSettings
from ragmeter.parts.views import Answer, FileAnswers
from ragmeter.windows.windows import Windows

_SERVICE = "file"
_MOMENT = 0.0  # of all traces, so that a file of a year fits an hour
_RUN = 512  # traces that are counted at a time, for a third of what they cost one by one


class FileQuestions(FileAnswers):
    """Counts the traces of a file as the running agent counts those of an hour.

    Args:
        settings: The goals.
        windows: Where times of requests are counted, for latency.
        observe: Counts a run of traces.
        asked: Returns what is known of a service.
    """

    def __init__(
        self,
        settings: QuestionsSettings,
        windows: Windows,
        observe: Callable[[ScoredBatch, float | None], None],
        asked: Callable[[str], AskedService],
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._observe = observe
        self._asked = asked
        self._empty = True
        self._states_known = False
        # what is not counted yet
        self._arrivals: list[Arrival] = []
        self._later: list[Arrival] = []

    def add(self, scored: ScoredTrace, rest: ScoredTrace | None) -> None:
        """Count a trace."""
        self._empty = False
        own = scored._replace(service=_SERVICE, timestamp=_MOMENT)
        # a table of another tool does not say which requests failed
        self._states_known |= own.status != "ok" or any(
            score.metric == "error" for score in own.results
        )
        self._windows.add(own._replace(results=[]), _SERVICE)
        self._arrivals.append(Arrival(own, (), _SERVICE))
        if rest is not None:
            later = rest._replace(service=_SERVICE, timestamp=_MOMENT)
            self._later.append(Arrival(later, (), _SERVICE))
        if len(self._arrivals) >= _RUN:
            self._count()

    def _count(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        later, self._later = self._later, []
        run = ScoredBatch(
            traces=[one.trace for one in (*arrivals, *later)],
            arrivals=arrivals,
            canaries=[],
            later=later,
        )
        self._observe(run, None)

    def answers(self) -> Sequence[Answer]:
        """Return every question, in order; empty without any trace."""
        if self._empty:
            return ()
        if self._arrivals:
            self._count()
        unknown = () if self._states_known else ("works",)
        return answer_file(self._asked(_SERVICE), self._settings, _MOMENT, unknown)
