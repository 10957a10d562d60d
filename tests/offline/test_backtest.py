"""A backtest says what the running agent would have said, to the byte, of whatever it is given."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule, parse_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodedTrace
from ragmeter.offline import backtest as module
from ragmeter.offline.backtest import Backtest
from ragmeter.offline.backtest_report import backtest_document
from ragmeter.offline.score_file import score_file
from ragmeter.offline.scored_lines import MAX_STRATA, decode_scored_line

from tests.cli.test_main import ROOT, ragmeter
from tests.scored import line_dict, line_of, result
from tests.traces import START, trace_dict
from tests.waiting import accept_in_turn, stop_agent

EXAMPLE = ROOT / "examples" / "mtrag.jsonl"
RULES: dict[str, Any] = {
    "rules": [
        {
            "name": "AnsweredLow",
            "severity": "critical",
            "metric": "answered",
            "statistic": "upper",
            "op": "<",
            "threshold": 0.7,
            "window": "5m",
            "for": "1m",
            "min_samples": 10,
        },
        {
            "name": "GroundingLow",
            "severity": "warning",
            "metric": "grounding",
            "op": "<",
            "threshold": 0.9,
            "window": "5m",
            "for": "2m",
            "keep_firing_for": "1m",
            "segment": "model",
        },
        {
            "name": "Errors",
            "severity": "critical",
            "metric": "error",
            "op": ">",
            "threshold": 0.5,
            "window": "5m",
            "for": "1m",
        },
        {
            "name": "Slow",
            "severity": "warning",
            "latency": {"quantile": 0.5},
            "op": ">",
            "threshold": 1,
            "window": "5m",
        },
        {
            "name": "Silent",
            "severity": "warning",
            "absence": True,
            "window": "5m",
            "min_samples": 10,
        },
    ]
}

SHORT = ["5m", "1h"]  # across a gap without traces every step of the longest window is evaluated


def settings(folder: Path | None = None, **more: Any) -> Settings:
    tree: dict[str, Any] = {"segments": ["model"], **more}
    if folder is not None:
        names = {"path": str(folder / "s.sqlite")}
        tree["state"] = names
    return load_settings(environ={}, overrides=tree)


def rules() -> list[AlertRule]:
    return parse_rules([RULES])


def run(lines: Sequence[dict[str, Any]], **more: Any) -> Backtest:
    backtest = Backtest(settings(**more), rules(), PARTS)
    for line in lines:
        backtest.feed(decode_scored_line(json.dumps(line).encode(), 2**20))
    backtest.finish()
    return backtest


def read(backtest: Backtest) -> Any:
    return json.loads("".join(backtest_document(backtest)))


def moves(alerts: Sequence[Alert]) -> list[tuple[Any, ...]]:
    return sorted(
        (a.rule, a.service, a.segment, a.state, a.since, a.fired_at, a.resolved_at, a.value)
        for a in alerts
    )


def replayed(path: Path, folder: Path) -> list[Alert]:
    """What fires and resolves in the running agent's replay of a file of traces, folded or not."""
    notified: list[Alert] = []
    running = EmbeddedAgent(settings(folder, windows=SHORT), rules(), live=False, parts=PARTS)
    items = [item for item in InputFile(path).read(2**21) if isinstance(item[0], DecodedTrace)]
    running.start()
    aggregator = running._worker.aggregator
    evaluate = aggregator._evaluate

    def noted(at: float) -> list[Alert]:
        moved = evaluate(at)
        notified.extend(alert.copy() for alert in moved)
        return moved

    aggregator._evaluate = noted  # type: ignore[method-assign]
    for at in range(0, len(items), 50):
        accept_in_turn(running, items[at : at + 50], "file")
    running.wait_idle()
    stop_agent(running, 10)
    return notified


def backtested(path: Path, folder: Path) -> tuple[list[Alert], Backtest]:
    scores = folder / "scores.jsonl"
    done = asyncio.run(score_file(path, scores, "jsonl", settings(), lambda line: None))
    assert done.traces
    notified: list[Alert] = []
    backtest = Backtest(settings(windows=SHORT), rules(), PARTS)
    note = backtest._note

    def listen(moved: Any) -> None:
        notified.extend(alert.copy() for alert in moved)
        note(moved)

    backtest._note = listen  # type: ignore[method-assign]
    for line in scores.read_bytes().splitlines():
        backtest.feed(decode_scored_line(line, 2**21))
    backtest.finish()
    return notified, backtest


def eventful(path: Path) -> None:
    """Traces with an outage, slow answers, silences, late and repeated traces."""
    rng = random.Random(8)
    with path.open("w") as file:
        for number in range(700):
            second = 4 * number + 1_200 * (number > 500) + 200_000 * (number > 600)
            bad = 200 < number < 280
            row = trace_dict(
                number - (number % 50 == 49),
                timestamp=START + second - 90 * (rng.random() < 0.1),
                status="error" if bad and rng.random() < 0.9 else "ok",
                timings={"total": 0.5 + 3 * (number % 200 > 150), "retrieval": 0.1},
                sampling={"probability": rng.choice([1, 0.5])},
                model=rng.choice("ab"),
            )
            file.write(json.dumps(row) + "\n")


@pytest.mark.parametrize("kind", ["example", pytest.param("eventful", marks=pytest.mark.slow)])
def test_the_alerts_are_those_of_a_replay(kind: str, tmp_path: Path) -> None:
    path = EXAMPLE
    if kind == "eventful":
        path = tmp_path / "traces.jsonl"
        eventful(path)
    live = replayed(path, tmp_path)
    notified, backtest = backtested(path, tmp_path)
    assert moves(notified) == moves(live)
    fired = {(a.rule, a.service, a.segment, a.fired_at) for a in live if a.state == "firing"}
    assert fired == {
        (a.rule, a.service, a.segment, a.fired_at) for a in backtest.alerts() if a.fired_at
    }
    assert {a.rule for a in live} >= (
        {"AnsweredLow", "GroundingLow"} if kind == "example" else {"Errors", "Slow", "Silent"}
    )


def outage() -> list[dict[str, Any]]:
    """A trace every ten seconds for 20 minutes; minutes 5 to 10 fail."""
    return [
        line_dict(
            10 * n,
            result("error", float(30 <= n < 60)),
            status="error" if 30 <= n < 60 else "ok",
            timings={"total": 0.5},
        )
        for n in range(120)
    ]


def of_rule(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The alerts of the rule of these tests, without those of drift."""
    return [alert for alert in found["alerts"] if alert["rule"] == "Errors"]


def test_a_small_case_worked_by_hand() -> None:
    """Steps are at START + 10, 25, 40, ... At 445 the window holds the traces of 150 to 440, 15 of
    30 failed; at 460 those of 170 to 450, 16 of 29: over 0.5. At 730 it holds 440 to 720, 16 of 29,
    at 745 450 to 740, 15 of 30."""
    found = read(run(outage()))
    assert START % 15 == 5
    (alert,) = of_rule(found)
    assert (alert["state"], alert["metric"]) == ("resolved", "error")
    assert alert["pending_at"] == "2025-10-09T09:01:00Z"
    assert alert["fired_at"] == "2025-10-09T09:02:00Z"
    assert alert["resolved_at"] == "2025-10-09T09:05:45Z"
    assert len(alert["worst"]) == 5
    assert {int(trace_id[1:]) // 10 for trace_id in alert["worst"]} <= set(range(30, 60))
    assert found["counts"]["traces"] == 120
    assert (found["from"], found["to"]) == ("2025-10-09T08:53:20Z", "2025-10-09T09:13:10Z")
    rows = {row["window"]: row for row in found["estimates"]}
    assert rows["5m"]["value"] == 0.0
    assert rows["1h"]["value"] == 0.25
    assert rows["1h"]["samples"] == 120
    assert rows["1h"]["states"]["scored"] == 120
    assert rows["1h"]["lower"] < 0.25 < rows["1h"]["upper"]
    assert {row["window"]: row["traces"] for row in found["traces"]} == {
        "5m": 30,
        "1h": 120,
        "24h": 120,
    }
    assert {row["quantile"] for row in found["latency"]} == {0.5, 0.95, 0.99}


def test_incidents_are_told_as_people_would_have_been() -> None:
    (incident,) = read(run(outage()))["incidents"]
    assert (incident["service"], incident["severity"]) == ("bot", "page")
    assert incident["title"] == "bot: 26 % of requests fail"
    assert incident["since"] == "2025-10-09T09:00:00Z"
    assert incident["opened_at"] == "2025-10-09T09:01:00Z"
    assert (incident["state"], incident["ended_at"], incident["segment"]) == ("open", None, "")
    assert read(run(outage()[:20]))["incidents"] == []


def test_what_still_fires_or_waits_at_the_end_is_told() -> None:
    lines = outage()
    firing = of_rule(read(run(lines[:58])))
    assert [(a["state"], a["resolved_at"]) for a in firing] == [("firing", None)]
    pending = of_rule(read(run(lines[:47])))
    assert [(a["state"], a["fired_at"]) for a in pending] == [("pending", None)]
    assert read(run(lines[:40]))["alerts"] == []


def test_scores_of_a_judge_are_weighted_and_have_a_fingerprint() -> None:
    """Ten times as many bad ones stand behind a bad one: 1/11 of the weight is good."""
    lines = [
        line_dict(
            n,
            {
                "metric": "answered",
                "scorer": "judge",
                "state": "scored",
                "value": n % 2,
                "probability": 0.5 if n % 2 else 0.05,
                "fingerprint": "3f2a",
            },
            timings={"total": 1.0},
        )
        for n in range(40)
    ]
    lines.append(line_dict(41, {"metric": "answered", "scorer": "judge", "state": "sampled_out"}))
    found = read(run(lines))
    (row,) = [row for row in found["estimates"] if row["window"] == "1h"]
    assert {row["samples"] for row in found["latency"]} == {40}  # timed once a trace
    assert (row["scorer"], row["fingerprint"]) == ("judge", "3f2a")
    assert row["value"] == pytest.approx(1 / 11, abs=1e-6)
    assert row["effective_samples"] < row["samples"] == 40
    assert row["states"]["sampled_out"] == 1


def test_strata_give_an_estimate_of_all_traffic() -> None:
    """A judge sees a tenth of the traces, nine tenths of those that failed more often; the
    estimate for all holds the truth."""
    rng = random.Random(11)
    lines, truth = [], []
    for n in range(3_000):
        stratum, p, good = ("rest", 0.1, 0.9) if n % 2 else ("rare", 0.9, 0.4)
        y = float(rng.random() < good)
        f = y if rng.random() < 0.9 else 1 - y
        more: dict[str, Any] = {"probability": p, "stratum": stratum, "cheap": f}
        drawn = rng.random() < p
        judged = {"state": "scored", "value": y} if drawn else {"state": "sampled_out"}
        judge = {"metric": "answered", "scorer": "judge", "fingerprint": "3f2a", **judged, **more}
        lines.append(line_dict(n, result("answered", f), judge))
        truth.append(y)
    found = read(run(lines))
    rows = {row["scorer"]: row for row in found["estimates"] if row["window"] == "1h"}
    assert set(rows) == {"builtin", "judge"}
    plain = rows["judge"]
    assert plain["fingerprint"] == "3f2a"
    mean = sum(truth) / len(truth)
    assert plain["lower"] < mean < plain["upper"]
    assert plain["states"]["sampled_out"] + plain["samples"] == 3_000
    assert plain["unscored"] == 0


def test_segments_have_rows_of_their_own() -> None:
    lines = [line_dict(n, tags={"model": "ab"[n % 2], "tenant": "x"}) for n in range(20)]
    found = read(run(lines))
    assert {row["segment"] for row in found["estimates"]} == {"", "model=a", "model=b"}


def test_copies_late_and_out_of_order_traces_count_as_live() -> None:
    lines = [line_dict(n) for n in range(10)]
    rng = random.Random(1)
    rng.shuffle(lines)
    late = line_dict(99, timestamp=START - 2 * 86400)
    found = read(run([*lines, *lines, late]))
    assert found["counts"] == {
        "lines": 0,
        "bad": 0,
        "duplicates": 10,
        "traces": 11,
        "late": 1,
        "unknown_results": 0,
        "invalid_values": 0,
        "alerts_left_out": 0,
    }
    assert {row["samples"] for row in found["estimates"]} == {10}
    assert found["from"] == "2025-10-09T08:53:20Z"


def test_names_from_a_file_are_bounded() -> None:
    """Neither services, tags, fingerprints, strata nor stages fill the memory."""
    lines = [
        line_dict(
            n,
            {
                "metric": "answered",
                "scorer": "judge",
                "state": "scored",
                "value": 1,
                "fingerprint": f"f{n}" * 50,
                "stratum": f"s{n}",
                "cheap": 1e300,
            },
            service=f"bot{n % 150}" if n >= 300 else "bot",
            tags={"model": f"m{n}"},
            timings={f"stage{n}": 1},
        )
        for n in range(900)
    ]
    backtest = run(lines)
    windows = backtest.windows
    assert len(windows.services()) <= 101
    assert len(windows.segments("bot")) <= 21
    assert len(windows.series("bot")) <= 17
    assert len(windows.stages("bot")) <= 8
    assert len(backtest._strata) == MAX_STRATA
    json.loads("".join(backtest_document(backtest)))


def test_alerts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ALERTS", 0)
    backtest = run(outage())
    assert backtest.alerts() == []
    assert backtest.counts.alerts_left_out == 2  # of the rule and of drift


def test_a_service_under_another_name_for_its_length_keeps_its_judge_scores() -> None:
    long = "x" * 200
    lines = [
        line_dict(
            n,
            result("error", 0),
            {"metric": "answered", "scorer": "judge", "state": "scored", "value": 1},
            service=long,
        )
        for n in range(10)
    ]
    backtest = run(lines)
    (service,) = backtest.windows.services()
    assert {pair[1] for pair in backtest.windows.series(service)} == {"builtin", "judge"}


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent hands to its store has no taker here: it must be let go."""
    monkeypatch.setattr(module, "SETTLE", 64)
    backtest = Backtest(settings(windows=SHORT), rules())
    for n in range(3 * module.SETTLE):
        # each is the worst of its minute
        backtest.feed(line_of(n, result("error", 1.0), timestamp=START + 60 * n))
    assert len(backtest.windows._state._new_worst) < module.SETTLE
    assert backtest._aggregator.accounting._results.total() < 20 * module.SETTLE


# The command -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scored")
    assert ragmeter("score", EXAMPLE, "-o", folder / "s.jsonl").returncode == 0
    (folder / "rules.yaml").write_text(json.dumps(RULES))
    config = {"segments": ["model"], "alerts": {"rules": str(folder / "rules.yaml")}}
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder


def command(folder: Path, *more: str | Path, **env: Any) -> Any:
    options = ("--config", folder / "config.yaml", *more)
    return ragmeter("backtest", folder / "s.jsonl", *options, cwd=folder, **env)


@pytest.mark.slow
def test_every_byte_is_the_same_whatever_surrounds_it(scored: Path) -> None:
    outputs = []
    for env in (
        {},  # of the tests, which is a process with a hash seed of its own each time
        {
            "PYTHONHASHSEED": "77",
            "TZ": "Asia/Kathmandu",
            "LC_ALL": "C",
            "COLUMNS": "60",
            "FORCE_COLOR": "1",
            "PYTHONIOENCODING": "latin-1",
            "TERM": "xterm-256color",
        },
    ):
        table = command(scored, **env)
        as_json = command(scored, "--format", "json", **env)
        assert (table.returncode, as_json.returncode) == (0, 0), table.stderr
        outputs.append((table.stdout, as_json.stdout))
    assert outputs[0] == outputs[1]
    table, as_json = outputs[0]
    assert "GroundingLow" in table.decode()
    assert b"\x1b" not in table
    found = json.loads(as_json)
    assert found["counts"]["traces"] == 230
    assert {alert["rule"] for alert in found["alerts"]} == {"AnsweredLow", "GroundingLow"}


def test_gzip_stdin_and_bad_lines(scored: Path) -> None:
    whole = (scored / "s.jsonl").read_bytes().splitlines()
    text = b"\n".join([*whole[:3], b"{oops \x1b[31m", *whole[3:20]])
    done = ragmeter("backtest", "-", "--format", "json", stdin=gzip.compress(text))
    assert done.returncode == 0
    assert b"line 4: Invalid JSON" in done.stderr
    assert b"20 traces, 1 lines unreadable" in done.stderr
    assert json.loads(done.stdout)["counts"]["bad"] == 1


def test_nothing_readable_is_1_and_a_mistake_in_the_call_is_2(tmp_path: Path) -> None:
    native = ragmeter("backtest", EXAMPLE)
    assert native.returncode == 1
    assert b"is this a file that `ragmeter score` has written?" in native.stderr
    assert native.stdout == b""
    assert native.stderr.count(b"\n") < 25  # not a line for each of 230
    assert ragmeter("backtest", tmp_path / "nowhere").returncode == 1
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert ragmeter("backtest", empty).returncode == 1
    bad = tmp_path / "rules.yaml"
    bad.write_text("rules: [{name: X, severity: loud}]")
    mistakes: list[tuple[list[str], dict[str, Any]]] = [
        ([], {"RAGMETER_ALERTS__RULES": str(bad)}),
        ([], {"RAGMETER_ALERTS__RULES": str(tmp_path / "nowhere")}),
        (["--format", "xml"], {}),
    ]
    for options, env in mistakes:
        done = ragmeter("backtest", empty, *options, **env)
        assert (done.returncode, b"Traceback" in done.stderr) == (2, False)


def test_hostile_names_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    evil = "\x1b]0;own\x07[red]<script>alert(1)</script>\u202e&\ufffe]]>"
    lines = [{**line, "service": evil, "trace_id": f"{evil}{n}"} for n, line in enumerate(outage())]
    backtest = run(lines)
    text = "".join(backtest_document(backtest))
    assert text.isascii()
    assert "\x1b" not in text
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "rules.yaml").write_text(json.dumps(RULES))
    env: dict[str, Any] = {
        "RAGMETER_ALERTS__RULES": str(tmp_path / "rules.yaml"),
        "RAGMETER_SEGMENTS": '["model"]',
    }
    done = ragmeter("backtest", path, **env)
    assert done.returncode == 0
    shown = done.stdout.decode()
    assert "Errors" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "[red]" in shown
