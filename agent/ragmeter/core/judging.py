"""How traces were judged: the instruments behind the fingerprints, and what the judges cost.

Each scored trace carries its own `TraceJudging`, so that any part of a file (some of its lines,
the traces of a service) still says by whom and at what price it was judged.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ragmeter.core.label_bounds import bound_label

# Bounds of what a file may hold, far above what a run writes: names end in tables and pages.
_MAX_NAME = 120
_MAX_ITEMS = 256

MAIN_JUDGE = "judge"  # the name of the judge of the settings; a second one has its own

# Digits of an amount in dollars: prices of a million tokens with six decimals need so many.
USD_DIGITS = 12

MARK = 4  # digits of a fingerprint in a text: they tell the few instruments of a report apart

_Name = Annotated[str, AfterValidator(lambda text: text and bound_label(text, _MAX_NAME))]
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Latencies = Annotated[list[_Amount], Field(max_length=10_000)]
_Pair = Annotated[list[_Count], Field(min_length=2, max_length=2)]
_FEW = Field(max_length=_MAX_ITEMS)
_Prompts = Annotated[list[_Name], _FEW]


@dataclass(slots=True)
class JudgeInstrument:
    """A judge as it was served and asked.

    Args:
        judge: `judge` or `second`.
        model: The model that was asked for.
        served: The model that replies name.
        structured: Where the schema of an answer went.
        parameters: Parameters as sent.
        fingerprints: Names and versions of the prompts by fingerprint. A fingerprint of several
            prompts or models is that of a metric that needs several answers.
    """

    judge: _Name
    model: _Name
    served: _Name
    system_fingerprint: _Name = ""
    structured: _Name = ""
    parameters: Annotated[dict[_Name, _Number | None], _FEW] = field(default_factory=dict)
    fingerprints: Annotated[dict[_Name, _Prompts], _FEW] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """All but the fingerprints, as text."""
        return json.dumps({**asdict(self), "fingerprints": None}, sort_keys=True)

    @property
    def title(self) -> str:
        """The model as served with what else identifies it, on one line."""
        served = self.served or self.model
        asked = f" (asked for {self.model})" if served != self.model else ""
        more = [f"{name} {value:g}" for name, value in self.parameters.items() if value is not None]
        names = [f"{served}{asked}", self.system_fingerprint, *more, self.structured]
        return ", ".join(filter(None, names))


@dataclass(slots=True)
class JudgeUse:
    """The use that was made of one judge.

    Args:
        calls: Attempts, failed ones included.
        cached: Answers that took no call: from the cache, or of an equal question on its way.
        estimated: Attempts whose tokens are estimated, as the reply gave none.
        latencies: Seconds of the attempts that a reply or a timeout ended.
    """

    calls: _Count = 0
    cached: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    estimated: _Count = 0
    usd: _Amount = 0.0
    latencies: _Latencies = field(default_factory=list)

    def add(self, other: JudgeUse) -> None:
        """Add another use to this one."""
        for one in fields(self):  # += extends the list in place
            total = getattr(self, one.name)
            total += getattr(other, one.name)
            setattr(self, one.name, total)

    def latency(self, share: float) -> float | None:
        """Return a quantile of the latencies (nearest rank), None without any."""
        if not self.latencies:
            return None
        return sorted(self.latencies)[max(0, math.ceil(share * len(self.latencies)) - 1)]


@dataclass(slots=True)
class TraceJudging:
    """The judging of one trace: when, by which judges, and at what price.

    Args:
        began: Unix time at which its judging began.
        seconds: How long that took.
        uses: By judge.
        compared: Verdicts that a second judge gave too, and how many of them differ, by kind.
    """

    began: Annotated[float, Field(ge=0, le=1e12)]
    seconds: _Amount
    uses: Annotated[dict[_Name, JudgeUse], _FEW] = field(default_factory=dict)
    instruments: Annotated[list[JudgeInstrument], _FEW] = field(default_factory=list)
    compared: Annotated[dict[_Name, _Pair], _FEW] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; `read_judging` reads it."""
        out = asdict(self)
        out["began"] = round(self.began, 3)
        out["seconds"] = round(self.seconds, 3)
        for use in out["uses"].values():
            use["latencies"] = [round(seconds, 3) for seconds in use["latencies"]]
            use["usd"] = round(use["usd"], USD_DIGITS)
        if not self.compared:
            del out["compared"]
        return out


_JUDGING = TypeAdapter(TraceJudging)


def read_judging(document: object) -> TraceJudging | None:
    """Read the JSON form of `TraceJudging`; None if it is something else."""
    try:
        return _JUDGING.validate_python(document)
    except ValidationError:
        return None
