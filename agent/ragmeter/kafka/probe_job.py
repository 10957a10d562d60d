"""The probes of the judge, as a background job of one worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from ragmeter.core.tiers import ScoringCost
from ragmeter.kafka.score_records import ScoreRecord
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state_group import StateGroup
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.scorers.judge.probes import RETRY_SECONDS, ProbeRunner
from ragmeter.scoring.inline_tiers import InlineTiers

log = logging.getLogger(__name__)

PROBE_KEY = PROBE_SERVICE.encode()
PROBE_POLL_SECONDS = 5.0
_PROBE_NOTE = "probes"


class ProbeJob:
    """Probes the judge from one worker: the owner of the partition `home` that counts the results.

    The baseline and the schedule are a note of that partition's state. A run that a rebalance or a
    kill interrupts is not repeated at once elsewhere: its cost is unknown, and the next is an hour
    away at most. Results become part of the state with the note: both are durable or neither.
    """

    def __init__(
        self,
        runner: ProbeRunner,
        group: StateGroup,
        tiers: InlineTiers,
        home: int,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._group = group
        self._tiers = tiers
        self._home = home
        self._clock = clock
        self._loaded_from: object = None  # the state whose note the runner has

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(PROBE_POLL_SECONDS)

    async def run_once(self) -> bool:
        """Probe if it is due and this worker's turn; return whether it was."""
        state = self._group.states(PartitionState).get(self._home)
        if state is None:
            return False
        if state is not self._loaded_from:
            self._loaded_from = state
            self._load(state.note(_PROBE_NOTE))
        now = self._tiers.newest
        if now is None or not self._runner.due:  # without traffic there is nothing to compare with
            return False
        self._save({**self._runner.dump(), "next": self._clock() + RETRY_SECONDS})
        cost = ScoringCost()
        try:
            results = await self._runner.run(cost)
        finally:
            self._tiers.charge(PROBE_SERVICE, cost)
        records = [ScoreRecord(scored._replace(timestamp=now), None) for scored in results]
        self._save(self._runner.dump(), records)
        return True

    def _load(self, note: Any) -> None:
        if note is None:
            return
        try:
            self._runner.load(note)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the saved probes of the judge are unusable and begin anew: %r", error)

    def _save(self, note: dict[str, Any], results: Iterable[ScoreRecord] = ()) -> None:
        with self._group.lock:
            state = self._group.states(PartitionState).get(self._home)
            if state is not None and state is self._loaded_from:
                state.save_note(_PROBE_NOTE, note)
                for record in results:
                    state.apply(record)
                state.settle()
