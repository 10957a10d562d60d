"""The identity of the model that a server serves, and what the client has learnt of the server.

A fingerprint names the instrument behind a verdict: the model and `system_fingerprint` as the
reply gives them, the prompt's hash, the parameters as sent with the place of the schema, and the
version of this code. Timeouts, output limits, prices and keys change no answer and are left out.

A hosted judge may answer from several builds in turn. If each build began a series of its own, the
scores of a metric would shatter into biased selections (a short trace is judged by one build, a
long one by several). So builds that answer in turn are one instrument, named by the one that came
last, and a new series begins where

- an identity answers that is new, or was absent;
- another identity answers than the one that names the series, and that one is absent: a rollback
  may have replaced it.

An identity is absent after `ABSENT` seconds of use without a reply. A server that makes up an
identity for each reply counts as one that gives none.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Literal

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.judging import JudgeInstrument
from ragmeter.scorers.llm.dialect import ChatDialect, ServerComplaint, restore_dialect

log = logging.getLogger(__name__)

# Output that a question grants: as it is, some times as much, all that the settings allow.
OutputRoom = Literal[0, 1, 2]

# A model that spends its output on thoughts and does not say so: 8 x 200 tokens leave it room, and
# a model that runs away is still stopped.
_ROOMY_FACTOR = 8

# Fewer output tokens than this are no limit of a model: the number stood for something else.
_LEAST_OUTPUT = 256

# Raise it whenever the same prompt and reply would give another verdict than before.
JUDGE_PROTOCOL = 2

# Longer names are cut: they come from outside and end in labels and files.
_NAME_CHARS = 120

# Seconds of use. A build that gives one reply in 30 is missed for so long, at one reply a second,
# with a chance of 1.5 in 10^9; and it bounds how late the way back to an earlier build is seen.
ABSENT = 600.0

# Most seconds between two replies that count as use. While nobody asks, nobody is absent: without
# this bound each build would seem to return after every quiet night. An absence takes 20 replies
# therefore, however slowly they come.
PAUSE = 30.0

# Identities that can answer within `ABSENT`. Services in use show a few; a server beyond it makes
# them up, or has so many that all of them together are the instrument.
MAX_IN_TURN = 8

# Identities down to which a server must come to be believed again: not at 8, or one that has 8 or
# 9 of them would switch to and fro.
CALM = MAX_IN_TURN // 2

# Identities remembered, the latest ones: enough to see more than `MAX_IN_TURN`.
MAX_IDENTITIES = 16

# Calls that got an answer in a weaker form, and none in the stronger one, before others are asked
# that way. A server that starts, or a provider that fails for a minute, looks like one that does
# not know the form; each such call tried the stronger form twice.
_TRIALS = 3

# Fingerprints remembered: prompts times identities, with room for a server that changes its name.
_MAX_FINGERPRINTS = 256


def _printable_name(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else "?" for char in value[:_NAME_CHARS])


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model as a reply names it: bounded, printable, empty where it says nothing."""

    model: str = ""
    system_fingerprint: str = ""

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> ServedModel:
        """Return the identity that a decoded reply claims."""
        return cls(*(_printable_name(reply.get(key)) for key in ("model", "system_fingerprint")))


def judge_fingerprint(
    served: ServedModel, prompt_hash: str, parameters: Mapping[str, Any], mode: str
) -> str:
    """Return 12 hex digits of SHA-256 (48 bits tell thousands of instruments apart)."""
    identity = [JUDGE_PROTOCOL, *astuple(served), prompt_hash, sorted(parameters.items()), mode]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]


class ServedModelHistory:
    """The models that one server has served of late, and the one that names the series.

    Args:
        state: Result of `state` before a restart. Its identities count as seen just now, as the
            time until then was no use. A state of another shape is ignored.
    """

    def __init__(self, clock: Callable[[], float], state: object = None) -> None:
        self._clock = clock
        self._last_reply: float | None = None
        self._used = 0.0  # seconds of use, the time in which identities are seen
        # when each was seen last, latest last: as replies claim, and as they are believed
        self._claimed: dict[ServedModel, float] = {}
        self._believed: dict[ServedModel, float] = {}
        # models with too many builds; None: the server has too many models
        self._noisy: set[str | None] = set()
        self.current: ServedModel | None = None  # None before the first reply
        self._restore(state)

    def observe(self, served: ServedModel) -> ServedModel:
        """Record the identity that a reply claims; return the one that names its series."""
        now = self._clock()
        if self._last_reply is not None:
            self._used += min(max(now - self._last_reply, 0.0), PAUSE)
        self._last_reply = now
        _remember(self._claimed, served, self._used)
        believed = self._believe(served)
        seen = self._believed.get(believed)
        _remember(self._believed, believed, self._used)
        current = self.current
        if current is None or self._is_absent(seen) or self._is_absent(self._believed.get(current)):
            self.current = current = believed
        return current

    def _is_absent(self, seen: float | None) -> bool:
        return seen is None or self._used - seen > ABSENT

    def _present(self, seen: Mapping[ServedModel, float]) -> list[ServedModel]:
        return [served for served, last in seen.items() if not self._is_absent(last)]

    def _believe(self, served: ServedModel) -> ServedModel:
        """Drop from an identity what the server makes up."""
        models = [present.model for present in self._present(self._claimed)]
        self._noisy &= {None, *models}
        if self._is_noise(None, len(set(models))):
            return ServedModel()
        if self._is_noise(served.model, models.count(served.model)):
            return ServedModel(served.model)
        return served

    def _is_noise(self, model: str | None, identities: int) -> bool:
        noisy = model in self._noisy
        if identities <= (CALM if noisy else MAX_IN_TURN):
            self._noisy.discard(model)
            return False
        if not noisy:
            self._noisy.add(model)
            kind = "models" if model is None else "system_fingerprints"
            log.warning("a judge shows more than %d %s: they are ignored", MAX_IN_TURN, kind)
        return True

    def state(self) -> dict[str, Any]:
        """Return the state for the next start, as JSON."""
        return {
            "current": list(astuple(self.current)) if self.current else None,
            "known": [list(astuple(served)) for served in self._present(self._believed)],
            "replies": [list(astuple(served)) for served in self._present(self._claimed)],
        }

    def _restore(self, state: object) -> None:
        if not isinstance(state, Mapping):
            return
        self.current = _restore_served(state.get("current"))
        if self.current is None:
            return
        for seen, name in ((self._believed, "known"), (self._claimed, "replies")):
            rows = state.get(name)
            for row in rows if isinstance(rows, list) else ():
                if (served := _restore_served(row)) is not None:
                    _remember(seen, served, self._used)
        _remember(self._believed, self.current, self._used)


def _remember(seen: dict[ServedModel, float], served: ServedModel, now: float) -> None:
    seen.pop(served, None)  # a dict keeps the order of first insertion
    seen[served] = now
    if len(seen) > MAX_IDENTITIES:
        del seen[next(iter(seen))]


def _restore_served(row: object) -> ServedModel | None:
    if not isinstance(row, list) or len(row) != 2 or not all(isinstance(x, str) for x in row):
        return None
    return ServedModel.from_reply({"model": row[0], "system_fingerprint": row[1]})


class JudgeServerState:
    """The dialect, the identity and the output limits of one model at one endpoint, as learnt.

    Args:
        endpoint: URL without credentials.
        state: Result of `state` before a restart; ignored for another endpoint or model.
        on_change: Called with the old and the new identity where a new series begins.
    """

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
        self._trials: dict[ChatDialect, int] = {}
        self._fingerprints: dict[tuple[ServedModel, str, ChatDialect], str] = {}
        same = state if state.get("asked") == self._asked else {}
        self.dialect = restore_dialect(same.get("dialect")) or ChatDialect(
            mode="prompt" if settings.structured == "prompt" else "schema"
        )
        # how much more output the model needs than a question grants
        rooms: dict[object, OutputRoom] = {1: 1, 2: 2}
        room = same.get("room")
        self.room: OutputRoom = rooms.get(room, 0) if isinstance(room, int) else 0
        limit = same.get("most_output")
        self.most_output: int | None = limit if type(limit) is int and limit > 0 else None
        self._history = ServedModelHistory(clock, same.get("served"))

    @property
    def served(self) -> ServedModel | None:
        """The identity that names the series; None before the first reply."""
        return self._history.current

    def state(self) -> dict[str, Any]:
        """Return the state for the next start, as JSON."""
        return {
            "asked": self._asked,
            "served": self._history.state(),
            "dialect": asdict(self.dialect),
            "room": self.room,
            "most_output": self.most_output,
        }

    def parameters(self, dialect: ChatDialect) -> dict[str, Any]:
        """Return the parameters of a request in this dialect."""
        settings = self._settings
        return dialect.parameters(settings.model, settings.temperature, settings.reasoning_effort)

    def output_limit(self, granted: int, room: OutputRoom) -> int:
        """Return the most tokens of an answer to a question that grants so many."""
        most = self._settings.max_output_tokens
        if self.most_output is not None:
            most = min(most, self.most_output)
        return min((granted, granted * _ROOMY_FACTOR, most)[room], most)

    def wider(self, granted: int, room: OutputRoom, *, thinks: bool) -> OutputRoom | None:
        """Return the room to try after an answer that the limit ended; None: there is no more.

        A model that thinks gets all the room at once, as each cut-off answer is paid for. What
        runs on without thoughts would run on with more room, too.
        """
        if thinks:
            self.room = 2  # the server's own count says so; calls to come need not find it out
        wanted: OutputRoom = 2 if thinks else 1
        wider = self.output_limit(granted, wanted) > self.output_limit(granted, room)
        return wanted if wanted > room and wider else None

    def cure_of_cut_off(self, limit: int, *, thinks: bool) -> str:
        """Return what helps where the output limit ended an answer, for the log."""
        most = self._settings.max_output_tokens
        if limit < most and limit == self.most_output:
            return ", the most that the server gives"
        if thinks:
            return ", which its thoughts use up: raise judge.max_output_tokens"
        if limit == most:
            return ": raise judge.max_output_tokens"
        return (
            ", which no verdict needs: the model runs on, or its server does not say that it thinks"
            " (if it says so, an answer may have all of judge.max_output_tokens)"
        )

    def record_most_output(self, tokens: int) -> bool:
        """Record the most output tokens that the server says it gives; return whether it is new."""
        known = self.most_output
        if tokens < _LEAST_OUTPUT or (known is not None and tokens >= known):
            return False
        self.most_output = tokens
        return True

    def fingerprint(self, served: ServedModel, prompt_hash: str, dialect: ChatDialect) -> str:
        """Return the fingerprint of an answer; remembered, as there are few."""
        key = (served, prompt_hash, dialect)
        fingerprint = self._fingerprints.get(key)
        if fingerprint is None:
            if len(self._fingerprints) >= _MAX_FINGERPRINTS:
                self._fingerprints.clear()
            fingerprint = self._fingerprints[key] = judge_fingerprint(
                served, prompt_hash, self.parameters(dialect), dialect.mode
            )
        return fingerprint

    def instruments(self, fingerprint: str) -> Iterator[tuple[JudgeInstrument, str]]:
        """Yield the instrument and the hash of the prompt behind a fingerprint, if it is known."""
        for (served, prompt_hash, dialect), known in self._fingerprints.items():
            if known == fingerprint:
                sent = self.parameters(dialect)
                asked = sent.pop("model") or ""
                model = served.model
                build = served.system_fingerprint
                instrument = JudgeInstrument(
                    judge=self._name,
                    model=asked,
                    served=model,
                    system_fingerprint=build,
                    structured=dialect.mode,
                    parameters=sent,
                )
                yield instrument, prompt_hash

    def record_completion(
        self, served: ServedModel, dialect: ChatDialect, *, learned: bool
    ) -> ServedModel:
        """Record a completion; return the identity that names its series.

        Args:
            served: Identity that the reply claims.
            dialect: Dialect of the request.
            learned: The call found this dialect by itself. The answer proves it for all calls; a
                complaint does not, as its text may quote a trace.
        """
        self._answered.add(dialect.mode)
        if learned and dialect != self.dialect:
            self.dialect = dialect
            log.info("%s: requests use %s from now on", self._name, dialect)
        before, now = self.served, self._history.observe(served)
        if before is not None and before != now:
            self._on_change(before, now)
        return now

    def record_readable(self, dialect: ChatDialect, *, room: OutputRoom, trial: bool) -> None:
        """Record a completion that could be read.

        Args:
            dialect: Dialect of the request.
            room: The room that it was given.
            trial: Only this call was asked in this dialect, to find out whether it helps.
        """
        self.room = max(room, self.room)
        self._readable.add(dialect.mode)
        if not trial or self.dialect.mode in self._readable or dialect == self.dialect:
            return
        self._trials[dialect] = self._trials.get(dialect, 0) + 1
        if self._trials[dialect] >= _TRIALS:
            self.dialect = dialect
            log.info("%s: requests use %s from now on", self._name, dialect)

    def weaken(self, dialect: ChatDialect, complaint: ServerComplaint) -> ChatDialect | None:
        """Return the dialect to try after this complaint, if any."""
        return dialect.weaker(
            complaint,
            may_change_mode=self._settings.structured == "auto",
            proven=dialect.mode in self._answered,
        )

    def after_unreadable(self, dialect: ChatDialect, repairs: int) -> ChatDialect:
        """Return the dialect in which to ask again after an answer that could not be read.

        Some servers take a `response_format` and ignore it, so the model has never seen the schema.
        The second repair of a call tries that, unless an answer in this mode was ever readable.
        """
        mode = dialect.mode
        fixed = self._settings.structured != "auto" or mode == "prompt" or mode in self._readable
        return dialect if fixed or repairs < 2 else replace(dialect, mode="prompt")
