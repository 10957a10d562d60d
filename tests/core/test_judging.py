from __future__ import annotations

import json
from typing import Any

from ragmeter.core.judging import JudgeInstrument, JudgeUse, TraceJudging, read_judging
from ragmeter.offline.judging_summary import JudgingSummary

from tests.tables import each_row

NAN = float("nan")


def judging(began: float = 0.0, seconds: float = 1.0, served: str = "m-1") -> TraceJudging:
    instrument = JudgeInstrument(
        "judge",
        "m",
        served,
        "fp",
        "schema",
        {"temperature": 0.0, "seed": None},
        {"a" * 12: ["umbrela@2"]},
    )
    use = JudgeUse(3, 1, 100, 10, 0, 0.1, [0.1, 0.2, 0.3])
    return TraceJudging(began, seconds, {"judge": use}, [instrument], {"claims": [4, 1]})


def summary(*parts: TraceJudging) -> JudgingSummary:
    out = JudgingSummary()
    for part in parts:
        out.add(part)
    return out


def test_what_is_written_is_read() -> None:
    written = judging(1.5, 2.25)
    assert read_judging(json.loads(json.dumps(written.to_dict()))) == written


@each_row(
    "change",
    [
        {"began": "now"},
        {"seconds": -1},
        {"uses": {"judge": {"calls": -1}}},
        {"uses": {"judge": {"usd": float("inf")}}},
        {"uses": {"judge": {"latencies": [float("nan")]}}},
        {"uses": {str(n): {} for n in range(300)}},
        {"instruments": [{"judge": "j"}]},
        {"instruments": [{"judge": "j", "model": "m", "served": "s", "parameters": {"t": NAN}}]},
        {"instruments": {}},
        {"compared": {"claims": [1]}},
    ],
)
def test_anything_else_is_left_out(change: dict[str, Any]) -> None:
    assert read_judging({**judging().to_dict(), **change}) is None
    assert read_judging([1]) is None
    assert read_judging("judging") is None


def test_names_of_a_file_are_bounded_and_printable() -> None:
    document = judging().to_dict()
    document["instruments"][0]["served"] = "evil\x1b[2J\n" + "x" * 500
    read = read_judging(document)
    assert read is not None
    assert read.instruments[0].served.isprintable()
    assert len(read.instruments[0].served) <= 120
    assert read.instruments[0].system_fingerprint == "fp"


def test_pauses_between_runs_are_no_judging() -> None:
    parts = [judging(1000.0, 10.0), judging(1005.0, 10.0), judging(1006.0, 1.0), judging(9e6, 2.0)]
    assert summary(*parts).seconds == 17.0
    assert summary(*reversed(parts)).seconds == 17.0
    assert JudgingSummary().seconds == 0.0


def test_a_model_that_changes_is_two_instruments() -> None:
    whole = summary(judging(), judging(), judging(served="m-2"))
    assert [(one.served, traces) for one, traces in whole.instruments.values()] == [
        ("m-1", 2),
        ("m-2", 1),
    ]
    assert whole.model("a" * 12) == "m-1 + m-2"
    assert whole.model("b" * 12) == ""
    assert whole.uses["judge"].calls == 9
    assert whole.compared == {"claims": [12, 3]}
    assert "second opinion: 3 of 12 verdicts differ (25.0 %): claims 3 of 12" in whole.lines()


def test_adding_changes_no_trace() -> None:
    one = judging()
    before = one.to_dict()
    summary(one, judging(), one)
    assert one.to_dict() == before


def test_quantiles_are_latencies_that_were_seen() -> None:
    use = JudgeUse(latencies=[float(n) for n in range(1, 21)])
    assert (use.latency(0.5), use.latency(0.95)) == (10.0, 19.0)
    assert JudgeUse(latencies=[2.0]).latency(0.95) == 2.0
    assert JudgeUse().latency(0.5) is None


def test_the_title_names_what_was_asked_and_what_was_served() -> None:
    (one,) = judging().instruments
    assert one.title == "m-1 (asked for m), fp, temperature 0, schema"
    assert JudgeInstrument("judge", "m", "").title == "m"
    assert JudgeInstrument("judge", "m", "m").title == "m"
