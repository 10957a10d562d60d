"""The identity of the model that a server serves, its fingerprint, and the dialect it is asked in.

Which instrument answered: the identity of a judge as 12 hex digits.

A fingerprint covers the model and `system_fingerprint` as the reply names them, the hash of the
prompt, the parameters as sent with the way the schema was given, and the version of this code.
What changes none of the answers (timeouts, output limits, prices, keys) is not in it.

Which instrument stands for a judge now: an epoch, the same for all its calls at a time. Pure.

A hosted judge may answer from several builds in turn. Were each reply a measurement of its own
build, the scores of a metric would shatter into series by who happened to answer, each a biased
selection (a short trace is judged by one build, a long one by several). So builds that answer in
turn are one instrument, named by the one that came to them last. A new epoch begins where

- an identity answers that is new, or was absent;
- another than the one that gave the epoch its name answers, and that one is absent: it may have
  been replaced by one that was there before, as after a rollback.

Absent is who was not heard for `ABSENT` seconds of use. A server that makes up an identity for
each reply has none: it counts as one that says nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ragmeter.config.scoring import JudgeSettings
from ragmeter.scorers.llm.dialect import ChatDialect, ServerComplaint, restore_dialect

# Raise it whenever the same prompt and reply would give another verdict than before.
JUDGE_PROTOCOL = 1

# Longer names are cut: they come from outside and end in labels and files.
_NAME_CHARS = 120


def _printable_name(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else "?" for char in value[:_NAME_CHARS])


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Who answered, by the reply's own word: empty where it says nothing. Bounded, printable."""

    model: str = ""
    system_fingerprint: str = ""

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> ServedModel:
        return cls(
            _printable_name(reply.get("model")), _printable_name(reply.get("system_fingerprint"))
        )


def judge_fingerprint(
    served: ServedModel, prompt_hash: str, parameters: Mapping[str, Any], mode: str
) -> str:
    """12 hex digits of SHA-256 (48 bits: enough to tell thousands of instruments apart)."""
    identity = [
        JUDGE_PROTOCOL,
        served.model,
        served.system_fingerprint,
        prompt_hash,
        sorted(parameters.items()),
        mode,
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]


log = logging.getLogger("ragmeter.judge")

ABSENT = 600.0
"""Seconds of use. A build that gives one reply in 30 is missed for so long, at one reply a second,
with a chance of 1.5 in 10^9; and it bounds how late the way back to an earlier build is seen."""

PAUSE = 30.0
"""The seconds between two replies that count as use, at most. While nobody asks, nobody is absent:
without this bound each build would seem to return after every quiet night. An absence takes 20
replies therefore, however slowly they come."""

MAX_IN_TURN = 8
"""Identities that can be heard within `ABSENT`. Services in use show a few; a server beyond it
makes them up, or has so many that all of them together are the instrument."""

CALM = MAX_IN_TURN // 2
"""Identities down to which a server must come to be believed again: not at 8, or one that has 8 or
9 of them would switch to and fro."""

MAX_IDENTITIES = 16
"""Identities remembered, the last that were heard: enough to see more than `MAX_IN_TURN`."""


class ModelEpochs:
    """The epochs of one client. `clock` gives seconds, monotonic.

    `state` is what `state()` gave before a restart: what it knows counts as heard just now, as the
    time until then was no use. A state of another shape is no state.
    """

    def __init__(self, clock: Callable[[], float], state: object = None) -> None:
        self._clock = clock
        self._before: float | None = None
        self._used = 0.0  # seconds of use: the time of what follows
        self._replies: dict[ServedModel, float] = {}  # as replies name themselves, latest last
        self._known: dict[ServedModel, float] = {}  # as they are believed, latest last
        self._noisy: set[str | None] = set()  # models whose builds, None: server whose models
        self.current: ServedModel | None = None
        """The identity that stands for the instrument; none before the first reply."""
        self._restore(state)

    def observe(self, served: ServedModel) -> ServedModel:
        """A reply came that names itself `served`: the identity of the epoch that it belongs to."""
        now = self._clock()
        if self._before is not None:
            self._used += min(max(now - self._before, 0.0), PAUSE)
        self._before = now
        _remember(self._replies, served, self._used)
        who = self._adopt(served)
        last = self._known.get(who)
        _remember(self._known, who, self._used)
        current = self.current
        if (
            current is None
            or self._observe_absent(last)
            or self._observe_absent(self._known.get(current))
        ):
            self.current = current = who
        return current

    def _observe_absent(self, last: float | None) -> bool:
        return last is None or self._used - last > ABSENT

    def _adopt(self, served: ServedModel) -> ServedModel:
        recent = [one for one, last in self._replies.items() if not self._observe_absent(last)]
        self._noisy &= {None, *(one.model for one in recent)}
        if self._makes_up(None, len({one.model for one in recent})):
            return ServedModel()
        if self._makes_up(served.model, sum(one.model == served.model for one in recent)):
            return ServedModel(served.model)
        return served

    def _makes_up(self, model: str | None, names: int) -> bool:
        """Whether `names` within `ABSENT` are too many to mean anything."""
        noisy = model in self._noisy
        if names > (CALM if noisy else MAX_IN_TURN):
            if not noisy:
                self._noisy.add(model)
                what = "models" if model is None else "system_fingerprints"
                log.warning("a judge shows more than %d %s: not used", MAX_IN_TURN, what)
            return True
        self._noisy.discard(model)
        return False

    def state(self) -> dict[str, Any]:
        """For the next start, as JSON."""
        return {
            "current": _identity_pair(self.current) if self.current else None,
            "known": self._present(self._known),
            "replies": self._present(self._replies),
        }

    def _present(self, table: Mapping[ServedModel, float]) -> list[list[str]]:
        return [
            _identity_pair(one) for one, last in table.items() if not self._observe_absent(last)
        ]

    def _restore(self, state: object) -> None:
        if not isinstance(state, Mapping):
            return
        current = _restore_served(state.get("current"))
        if current is None:
            return
        self.current = current
        for table, name in ((self._known, "known"), (self._replies, "replies")):
            rows = state.get(name)
            for row in rows if isinstance(rows, list) else ():
                if (one := _restore_served(row)) is not None:
                    _remember(table, one, self._used)
        _remember(self._known, current, self._used)


def _remember(table: dict[ServedModel, float], who: ServedModel, now: float) -> None:
    table.pop(who, None)  # a dict keeps the order of first insertion
    table[who] = now
    if len(table) > MAX_IDENTITIES:
        del table[next(iter(table))]


def _identity_pair(served: ServedModel) -> list[str]:
    return [served.model, served.system_fingerprint]


def _restore_served(row: object) -> ServedModel | None:
    if not isinstance(row, list) or len(row) != 2 or not all(isinstance(x, str) for x in row):
        return None
    return ServedModel.from_reply({"model": row[0], "system_fingerprint": row[1]})


# Unreadable answers and no other: at 5 % malformed replies, one start in 8000 looks like that. One
# answer earlier the schema goes into the prompt already, for that call.
_UNREADABLE_LIMIT = 3

# Fingerprints remembered: prompts times who serves, with room for a server that changes its name.
_MAX_FINGERPRINTS = 256


class JudgeServerState:
    """One model at one endpoint. `on_change(old, new)` hears of every new epoch (`Epochs`); `clock`
    is monotonic."""

    def __init__(
        self,
        settings: JudgeSettings,
        endpoint: str,
        name: str,
        state: Mapping[str, Any],
        on_change: Callable[[ServedModel, ServedModel], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._name = name
        self._on_change = on_change
        self._asked = [endpoint, settings.model, settings.structured]
        self._answered: set[str] = set()  # modes in which a completion came
        self._readable: set[str] = set()  # modes in which one could be read
        self._unreadable = 0
        self._marks: dict[tuple[ServedModel, str, ChatDialect], str] = {}
        self.dialect = ChatDialect(mode="prompt" if settings.structured == "prompt" else "schema")
        self.roomy = False
        """Whether the model needs more output tokens than a question grants."""
        known: object = None
        if state.get("asked") == self._asked:  # else of another endpoint or model: nothing holds
            self.dialect = restore_dialect(state.get("dialect")) or self.dialect
            self.roomy = state.get("roomy") is True
            known = state.get("served")
        self._epochs = ModelEpochs(clock, known)

    @property
    def served(self) -> ServedModel | None:
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

    def parameters(self, dialect: ChatDialect) -> dict[str, Any]:
        settings = self._settings
        return dialect.parameters(settings.model, settings.temperature, settings.seed)

    def fingerprint(self, served: ServedModel, prompt_hash: str, dialect: ChatDialect) -> str:
        key = (served, prompt_hash, dialect)
        known = self._marks.get(key)
        if known is None:
            if len(self._marks) >= _MAX_FINGERPRINTS:
                self._marks.clear()
            known = judge_fingerprint(served, prompt_hash, self.parameters(dialect), dialect.mode)
            self._marks[key] = known
        return known

    def record_completion(
        self, served: ServedModel, dialect: ChatDialect, *, learned: bool
    ) -> ServedModel:
        """A completion came that names itself `served`: who stands for the instrument that gave it.
        `learned`: the dialect was found out by the call that got it.

        An answer proves a dialect; a complaint does not, as its text may quote a trace.
        """
        self._answered.add(dialect.mode)
        if learned and dialect != self.dialect:
            self.dialect = dialect
            log.info("%s: asked by %s from now on", self._name, dialect)
        before, now = self.served, self._epochs.observe(served)
        if before is not None and before != now:
            self._on_change(before, now)
        return now

    def record_readable(self, dialect: ChatDialect, *, roomy: bool) -> None:
        """The completion could be read."""
        self._readable.add(dialect.mode)
        self.roomy = roomy or self.roomy

    def weaken(self, dialect: ChatDialect, complaint: ServerComplaint) -> ChatDialect | None:
        """The dialect to try after this complaint."""
        return dialect.weaker(
            complaint,
            may_change_mode=self._settings.structured == "auto",
            proven=dialect.mode in self._answered,
        )

    def record_unreadable(self, dialect: ChatDialect) -> tuple[ChatDialect, bool] | None:
        """A completion could not be read: the dialect to repair it in, and whether to keep it if
        that helps; none: the same.

        Some servers take a `response_format` and ignore it: the model has never seen the schema.
        """
        mode = dialect.mode
        if self._settings.structured != "auto" or mode == "prompt" or mode in self._readable:
            return None
        self._unreadable += 1
        if self._unreadable < _UNREADABLE_LIMIT - 1:
            return None
        return replace(dialect, mode="prompt"), self._unreadable >= _UNREADABLE_LIMIT
