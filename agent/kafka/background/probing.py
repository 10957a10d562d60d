"""Probes of the judge on the cluster: one worker asks, and one partition counts.

It is the worker that owns the state partition where their results are counted (`home`): there is
exactly one, and baseline and schedule are part of that partition's state, so that they survive it.
A run that a rebalance or a kill interrupts is not begun again elsewhere at once: what it would cost
is known to nobody, and the next is an hour away at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokafka.partitioner import murmur2

from agent.judge.probes import RETRY_SECONDS, ProbeRunner
from agent.kafka.messages.records import ScoreRecord, encode_record
from agent.kafka.stages.aggregate_stage import AggregateStage
from agent.metrics.judges import PROBES
from agent.tiers import Cost

__all__ = ["KEY", "Probing", "home_of"]

log = logging.getLogger("ragmeter.kafka")

KEY = PROBES.encode()
NOTE = "probes"
LOOK_SECONDS = 5.0


def home_of(partitions: int) -> int:
    """Where a producer puts the key of the probes."""
    return int((murmur2(KEY) & 0x7FFFFFFF) % partitions)


class Paying(Protocol):
    """The slow tiers in line."""

    newest: float | None
    """The newest event time of all traces that were read here."""

    def charge(self, service: str, cost: Cost) -> None: ...


class Probing:
    """`send` delivers a record to the partition `home` of the scores."""

    def __init__(
        self,
        runner: ProbeRunner,
        stage: AggregateStage,
        tiers: Paying,
        send: Callable[[bytes], Awaitable[object]],
        home: int,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._stage = stage
        self._tiers = tiers
        self._send = send
        self._home = home
        self._clock = clock
        self._loaded: object = None  # the owner whose note the runner has

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.turn()
            await asyncio.sleep(LOOK_SECONDS)

    async def turn(self) -> bool:
        """Ask if it is due and ours to ask; whether it was."""
        owner = self._stage.owners.get(self._home)
        if owner is None:
            return False
        if owner is not self._loaded:
            self._loaded = owner
            self._load(owner.state.note(NOTE))
        now = self._tiers.newest
        if now is None or not self._runner.due:  # without traffic there is nothing to compare with
            return False
        self._note({**self._runner.dump(), "next": self._clock() + RETRY_SECONDS})
        cost = Cost()
        try:
            found = await self._runner.run(cost)
        finally:
            self._tiers.charge(PROBES, cost)
        for scored in found:
            scored.timestamp = now
            await self._send(encode_record(ScoreRecord(scored, None)))
        self._note(self._runner.dump())
        return True

    def _load(self, note: Any) -> None:
        if note is None:
            return
        try:
            self._runner.load(note)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the probes of the judge begin anew: %r", error)

    def _note(self, dump: dict[str, Any]) -> None:
        with self._stage.lock:
            owner = self._stage.owners.get(self._home)
            if owner is not None and owner is self._loaded:
                owner.state.keep_note(NOTE, dump)
