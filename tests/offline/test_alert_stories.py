"""The stories that alerts tell of staged changes, through `ragmeter backtest`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.offline.backtest import Backtest
from ragmeter.offline.scored_lines import decode_scored_line
from ragmeter.windows.estimators import wilson_interval

from tests.cli.test_main import ragmeter
from tests.scored import result

HOUR = 3600.0
BEGIN = 1_760_000_400.0
CHANGE = 13 * HOUR
EVERY = 15.0  # seconds between two traces
SETTINGS = {
    "segments": ["task"],
    "drift": {"baseline_days": 0.25},
    "alerts": {"evaluation_seconds": 60},  # as often as drift is looked at
}

Draw = Callable[[random.Random, bool], dict[str, Any]]


def stream(draw: Draw, hours: float, every: float = EVERY, seed: int = 7) -> Iterator[Any]:
    """Traces of thirteen calm hours and `hours` after the change; `draw` makes tags and results."""
    rng = random.Random(seed)
    for n in range(int((CHANGE + hours * HOUR) / every)):
        at = n * every
        own = draw(rng, at >= CHANGE)
        yield {"trace_id": f"t{n}", "service": "bot", "timestamp": BEGIN + at, **own}


class Played(NamedTuple):
    """The first alert of each scorer and kind as it fired, and those that fire at the end."""

    fired: dict[str, Alert]
    late: dict[str, Alert]


@cache
def play(draw: Draw, hours: float = 4.0, every: float = EVERY) -> Played:
    backtest = Backtest(load_settings(environ={}, overrides=SETTINGS), [], parts=PARTS)
    for line in stream(draw, hours, every):
        backtest.feed(decode_scored_line(json.dumps(line).encode(), 2**20))
    backtest.finish()
    played = Played({}, {})
    for alert in backtest.alerts():
        assert alert.fired_at is not None
        assert alert.fired_at > BEGIN + CHANGE, "nothing had changed yet"
        played.fired.setdefault(f"{alert.scorer} {alert.labels['kind']}", alert)
    for alert in backtest._aggregator.parts.alerts():
        if alert.state == "firing":
            played.late[f"{alert.scorer} {alert.labels['kind']}"] = alert
    for alert in (*played.fired.values(), *played.late.values()):
        check_everywhere(alert)
    return played


def check_everywhere(alert: Alert) -> None:
    """What holds of every text, whatever was staged."""
    assert alert.drift is not None
    assert "detector" not in alert.summary
    assert "False alarm at most every " in alert.summary
    assert len(alert.summary) < 1000
    if alert.drift["kind"] != "judge":
        assert alert.value is not None
        assert alert.lower is not None
        assert alert.upper is not None
        assert 0 <= alert.lower <= alert.value <= alert.upper <= 1
    # a change is not dated much later than it was, unless that is said
    true = alert.since + alert.drift["span_seconds"] - BEGIN - CHANGE
    assert alert.drift["since_at_least"] or alert.drift["span_seconds"] >= 0.7 * true - 300


def beta(rng: random.Random, mean: float, size: float = 12.0) -> float:
    return rng.betavariate(mean * size, (1 - mean) * size)


def mixed(rng: random.Random, late: bool) -> dict[str, Any]:
    """Reports are worse than questions, and from 20 % of the traffic become 80."""
    report = rng.random() < (0.8 if late else 0.2)
    task = "report" if report else "qa"
    return {
        "tags": {"task": task},
        "results": [result("grounding", beta(rng, 0.58 if report else 0.74))],
    }


def rolled_out(rng: random.Random, late: bool) -> dict[str, Any]:
    """A task that was not there before has 40 % of the traffic, and is bad."""
    task = "chat" if late and rng.random() < 0.4 else rng.choice(["qa", "report"])
    return {
        "tags": {"task": task},
        "results": [result("grounding", beta(rng, 0.38 if task == "chat" else 0.72))],
    }


def alone(rng: random.Random, late: bool) -> dict[str, Any]:
    """One task is all of the traffic."""
    return {
        "tags": {"task": "qa"},
        "results": [result("grounding", beta(rng, 0.7 if late else 0.9))],
    }


def judge(
    rng: random.Random, cheap: float, good: bool, wrong: float, rate: float = 0.5
) -> dict[str, Any]:
    drawn = rng.random() < rate
    value = float(good and rng.random() >= wrong)
    scored = {"state": "scored", "value": value} if drawn else {"state": "sampled_out"}
    return {
        "metric": "grounding", "scorer": "hhem", "probability": rate, "stratum": "all",
        "cheap": cheap, **scored,
    }  # fmt: skip


def judged(apart: float, wrong: float = 0.0, bad: float = 0.08, noise: bool = False) -> Draw:
    """The cheap score of a good answer lies `apart` above that of a bad one. After the change the
    judge calls `wrong` of the good answers bad, or so many answers are `bad`."""

    def draw(rng: random.Random, late: bool) -> dict[str, Any]:
        good = rng.random() >= (bad if late else 0.08)
        cheap = beta(rng, 0.6 + apart * (good - 0.9))
        return {
            "tags": {"task": rng.choice(["qa", "report"])},
            "results": [
                result("grounding", cheap),
                judge(rng, cheap, good, wrong if late else 0.0),
            ],
        }

    return draw


def spread(rng: random.Random, late: bool) -> dict[str, Any]:
    """Scores spread out, up to both ends, around the same mean."""
    value = beta(rng, 0.7, 0.8 if late else 40.0)
    return {"tags": {"task": "qa"}, "results": [result("grounding", value)]}


def refused(rng: random.Random, late: bool) -> dict[str, Any]:
    return {
        "tags": {"task": rng.choice(["qa", "report"])},
        "results": [result("answered", float(rng.random() < (0.376 if late else 0.95)))],
    }


def crept(rng: random.Random, late: bool) -> dict[str, Any]:
    """A small fall, found late."""
    return {
        "tags": {"task": rng.choice(["qa", "report"])},
        "results": [result("grounding", beta(rng, 0.672 if late else 0.7))],
    }


def one_fell(rng: random.Random, late: bool) -> dict[str, Any]:
    task = rng.choice(["qa", "report", "chat"])
    mean = 0.4 if late and task == "report" else 0.75
    return {"tags": {"task": task}, "results": [result("grounding", beta(rng, mean))]}


def nearly_gone(rng: random.Random, late: bool) -> dict[str, Any]:
    """Nearly nothing is left above the upper edges."""
    value = beta(rng, 0.55 if late else 0.75, 60.0)
    return {"tags": {"task": "qa"}, "results": [result("grounding", value)]}


def split(words: str) -> tuple[float, float, float]:
    """The change, and what of it is within segments and from traffic between them."""
    parts = words.split("of the change of ")[1].replace(",", "").split()
    return float(parts[0]), float(parts[1]), float(parts[parts.index("and") + 1])


def test_a_mix_shift_says_so_and_whose_share_moved() -> None:
    fired, late = (part["builtin mean"] for part in play(mixed))
    for alert in (fired, late):
        words = alert.top_segment_words
        assert words.startswith("because traffic moved: ")
        share = words.partition("task=report from ")[2].split(" %")
        assert 17 <= int(share[0]) <= 23
        assert 72 <= int(share[1].removeprefix(" to ")) <= 88
        assert alert.top_segment == "", "no task got worse"
        assert "more than the others" not in words
        assert "alike" not in words
        assert words in alert.summary
    total, within, mix = split(late.top_segment_words)
    assert within + mix == pytest.approx(total, abs=0.02)
    assert abs(within) < 0.25 * abs(total)


def test_a_new_segment_is_named() -> None:
    for part in play(rolled_out):
        alert = part["builtin mean"]
        assert alert.top_segment == "task=chat"
        assert "task=chat is new, with " in alert.summary
        assert "alike" not in alert.summary
        total, _, mix = split(alert.top_segment_words)
        assert mix / total > 0.6


@pytest.mark.parametrize("kind", ["mean", "distribution"])
def test_one_segment_that_is_all_traffic_is_unlike_no_rest(kind: str) -> None:
    for part in play(alone):
        alert = part[f"builtin {kind}"]
        assert (alert.top_segment, alert.top_segment_words) == ("", "")
        assert "the rest" not in alert.summary
        assert "alike" not in alert.summary


def test_the_segment_that_fell_is_named_with_its_part_of_the_change() -> None:
    alert = play(one_fell).late["builtin mean"]
    assert alert.top_segment == "task=report"
    assert "task=report changed more than the others, 0.7" in alert.summary
    total, within, _ = split(alert.top_segment_words)
    assert within / total > 0.8
    assert play(one_fell).fired["builtin mean"].top_segment in ("", "task=report")


def test_a_fall_of_all_is_said_to_be_one_when_there_is_evidence() -> None:
    alert = play(refused).late["builtin rate"]
    assert (alert.top_segment, alert.top_segment_words) == ("", "all segments of task moved alike")


WEAK = judged(0.12, wrong=0.3)
UNRELATED = judged(0.0, wrong=0.3)


def test_a_judge_that_changes_is_told_apart_where_the_cheap_score_correlates_weakly() -> None:
    """A correlation of some .23: there is no residual to watch."""
    fired, late = play(WEAK, 6.0, 7.5)
    assert set(fired) == set(late) == {"hhem mean"}
    assert fired["hhem mean"].summary.startswith("bot: grounding by hhem went from 0.9")
    assert "the cheap score of all traffic has not moved" in fired["hhem mean"].summary
    alert = late["hhem mean"]
    assert alert.rule == "RagJudgeChanged"
    assert "the cheap score of all traffic has not moved (0.6" in alert.summary
    assert "the judge has changed, or the answers in a way that the cheap score does not see" in (
        alert.summary
    )


def test_where_the_cheap_score_says_nothing_neither_judge_nor_answers_are_blamed() -> None:
    for part in play(UNRELATED, 6.0, 7.5):
        assert set(part) == {"hhem mean"}
        alert = part["hhem mean"]
        assert alert.rule == "RagDrift"
        assert "has not moved beyond chance (0.6" in alert.summary
        assert "does not tell the judge from the answers" in alert.summary


def test_a_judge_that_changes_strongly_correlated_is_told_by_the_residual() -> None:
    fired = play(judged(0.35, wrong=0.25), 5.0).fired
    assert {alert.rule for alert in fired.values()} == {"RagJudgeChanged"}
    assert any("the judge has changed" in alert.summary for alert in fired.values())


def test_answers_that_get_worse_are_not_put_down_to_the_judge() -> None:
    for part in play(judged(0.35, bad=0.35), 5.0):
        assert {alert.rule for alert in part.values()} == {"RagDrift"}
        assert "the cheap score has moved, too" in part["hhem mean"].summary


def test_a_level_after_a_deep_fall_has_the_interval_of_its_own_samples() -> None:
    alert = play(refused).fired["builtin rate"]
    assert alert.value is not None
    expected = wilson_interval(alert.value, alert.effective_samples)
    assert (alert.lower, alert.upper) == pytest.approx(expected, abs=0.005)
    assert f"on {alert.samples} samples" in alert.summary


def test_an_interval_of_a_share_near_zero_stays_within_it() -> None:
    alert = play(nearly_gone).fired["builtin distribution"]
    assert alert.value is not None
    assert alert.value < 0.2
    assert "-0" not in alert.summary.split("interval")[1].split("samples")[0]


def test_a_spread_that_widens_blames_no_segment() -> None:
    assert play(spread).late["builtin distribution"].top_segment == ""


def test_an_old_change_is_not_dated_to_four_hours_ago() -> None:
    assert play(crept, 12.0).fired  # `check_everywhere` has the dates


def test_the_command_prints_the_same_story(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in stream(mixed, 4.0)))
    (tmp_path / "config.yaml").write_text(json.dumps(SETTINGS))
    done = ragmeter("backtest", path, "--config", tmp_path / "config.yaml", "--format", "json")
    assert done.returncode == 0
    printed = [alert["summary"] for alert in json.loads(done.stdout)["alerts"]]
    assert play(mixed).fired["builtin mean"].summary in printed
