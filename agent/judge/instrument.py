"""What a client knows of its judge: who serves, and how it must be asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from agent.config import Judge
from agent.judge.dialect import Complaint, Dialect, restored
from agent.judge.epoch import Epochs
from agent.judge.fingerprint import Served, fingerprint

__all__ = ["Instrument"]

log = logging.getLogger("ragmeter.judge")

# Unreadable answers and no other: at 5 % malformed replies, one start in 8000 looks like that. One
# answer earlier the schema goes into the prompt already, for that call.
DOUBT = 3

# Fingerprints remembered: prompts times who serves, with room for a server that changes its name.
MAX_MARKS = 256


class Instrument:
    """One model at one endpoint. `on_change(old, new)` hears of every new epoch (`Epochs`); `clock`
    is monotonic."""

    def __init__(
        self,
        settings: Judge,
        endpoint: str,
        name: str,
        state: Mapping[str, Any],
        on_change: Callable[[Served, Served], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._name = name
        self._on_change = on_change
        self._asked = [endpoint, settings.model, settings.structured]
        self._answered: set[str] = set()  # modes in which a completion came
        self._readable: set[str] = set()  # modes in which one could be read
        self._unreadable = 0
        self._marks: dict[tuple[Served, str, Dialect], str] = {}
        self.dialect = Dialect(mode="prompt" if settings.structured == "prompt" else "schema")
        self.roomy = False
        """Whether the model needs more output tokens than a question grants."""
        known: object = None
        if state.get("asked") == self._asked:  # else of another endpoint or model: nothing holds
            self.dialect = restored(state.get("dialect")) or self.dialect
            self.roomy = state.get("roomy") is True
            known = state.get("served")
        self._epochs = Epochs(clock, known)

    @property
    def served(self) -> Served | None:
        """Who stands for the instrument now; none before the first reply."""
        return self._epochs.current

    def state(self) -> dict[str, Any]:
        """For the next start, as JSON."""
        return {
            "asked": self._asked,
            "served": self._epochs.state(),
            "dialect": asdict(self.dialect),
            "roomy": self.roomy,
        }

    def parameters(self, dialect: Dialect) -> dict[str, Any]:
        settings = self._settings
        return dialect.parameters(settings.model, settings.temperature, settings.seed)

    def fingerprint(self, served: Served, prompt_hash: str, dialect: Dialect) -> str:
        key = (served, prompt_hash, dialect)
        known = self._marks.get(key)
        if known is None:
            if len(self._marks) >= MAX_MARKS:
                self._marks.clear()
            known = fingerprint(served, prompt_hash, self.parameters(dialect), dialect.mode)
            self._marks[key] = known
        return known

    def answered(self, served: Served, dialect: Dialect, *, learned: bool) -> Served:
        """A completion came that names itself `served`: who stands for the instrument that gave it.
        `learned`: the dialect was found out by the call that got it.

        An answer proves a dialect; a complaint does not, as its text may quote a trace.
        """
        self._answered.add(dialect.mode)
        if learned and dialect != self.dialect:
            self.dialect = dialect
            log.info("%s: asked by %s from now on", self._name, dialect)
        before, now = self.served, self._epochs.heard(served)
        if before is not None and before != now:
            self._on_change(before, now)
        return now

    def readable(self, dialect: Dialect, *, roomy: bool) -> None:
        """The completion could be read."""
        self._readable.add(dialect.mode)
        self.roomy = roomy or self.roomy

    def weaker(self, dialect: Dialect, complaint: Complaint) -> Dialect | None:
        """The dialect to try after this complaint."""
        return dialect.weaker(
            complaint,
            may_change_mode=self._settings.structured == "auto",
            proven=dialect.mode in self._answered,
        )

    def doubted(self, dialect: Dialect) -> tuple[Dialect, bool] | None:
        """A completion could not be read: the dialect to repair it in, and whether to keep it if
        that helps; none: the same.

        Some servers take a `response_format` and ignore it: the model has never seen the schema.
        """
        mode = dialect.mode
        if self._settings.structured != "auto" or mode == "prompt" or mode in self._readable:
            return None
        self._unreadable += 1
        if self._unreadable < DOUBT - 1:
            return None
        return replace(dialect, mode="prompt"), self._unreadable >= DOUBT
