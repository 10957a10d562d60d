"""Judge and model as configured, in the running agent, against a judge over HTTP."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.scorers.hhem.model import ModelError
from ragmeter.scorers.hhem.workers import NICENESS
from ragmeter.scorers.llm.served_model import ServedModel
from ragmeter.scoring import slow_tiers
from ragmeter.scoring.judges import _log_served_model
from ragmeter.scoring.slow_tiers import (
    ConfiguredTiers,
    SlowTiers,
    build_slow_tiers,
)
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.embedded.test_slow_tiers import mismatch, states
from tests.scorers.judge.stub_process import StubProcess, stub_judge
from tests.scorers.mini.folders import write_folder
from tests.traces import good
from tests.waiting import stop_agent, until

TINY = Path(__file__).parents[1] / "data" / "hhem-tiny"


@contextmanager
def running(
    folder: Path, stub: StubProcess, *, live: bool = False, **judge: Any
) -> Iterator[EmbeddedAgent]:
    tree = {
        "state": {"path": str(folder / "s.sqlite")},
        "sampling": {"judge": 1.0},
        "judge": {
            "base_url": stub.base_url,
            "model": "m",
            "input_usd_per_million": 1.0,
            "second": {"share": 0},
            "probes": {"enabled": False},
            **judge,
        },
    }
    settings = load_settings(environ={}, overrides=tree)
    started = EmbeddedAgent(
        settings, [], live=live, tiers=lambda saved: build_slow_tiers(settings, saved), parts=PARTS
    )
    started.start()
    try:
        yield started
    finally:
        stop_agent(started, 4)


def judged(count: int, start: int = 0, **changes: Any) -> list[Any]:
    return [good(n, query=f"How do I reset password {n}?", **changes) for n in range(start, count)]


def values(text: str, name: str) -> list[tuple[str, float]]:
    lines = [line for line in text.splitlines() if line.startswith(name + "{")]
    return [(line[len(name) : line.rindex(" ")], float(line.split()[-1])) for line in lines]


def test_judged_metrics_reach_the_exposition_with_their_judge(tmp_path: Path) -> None:
    with stub_judge() as stub, running(tmp_path, stub) as started:
        started.accept(judged(12), "test")
        started.wait_idle()
        exporter = PrometheusExporter(started)
        text = (exporter.render() + exporter.render_detail()).decode()
        calls = stub.stats()["calls"]
    ((labels, _),) = [v for v in values(text, "rag_ndcg_at_k_mean") if 'window="24h"' in v[0]]
    assert 'scorer="umbrela"' in labels
    assert 'k="5"' in labels
    assert 'fingerprint="' in labels
    requests = values(text, "ragmeter_judge_requests_total")
    assert requests == [('{judge="judge",outcome="ok"}', calls)]
    assert values(text, "ragmeter_judge_duration_seconds_count") == [('{judge="judge"}', calls)]
    last = '{judge="judge",le="+Inf"}', calls
    assert last in values(text, "ragmeter_judge_duration_seconds_bucket")
    ((_, usd),) = values(text, "ragmeter_judge_cost_usd_total")
    tokens = dict(values(text, "ragmeter_judge_tokens_total"))
    assert usd == pytest.approx(tokens['{judge="judge",direction="input"}'] / 1e6)
    info = values(text, "ragmeter_judge_info") or values(text, "ragmeter_judge_info_info")
    marks = {labels.split('fingerprint="')[-1][:12] for labels, _ in info}
    shown = {
        labels.split('fingerprint="')[-1][:12]
        for labels, _ in values(text, "rag_relevance_mean")
        if "fingerprint" in labels
    }
    assert shown
    assert shown <= marks
    assert all(value == 0 for _, value in values(text, "ragmeter_accounting_mismatch"))


def test_what_the_judge_is_asked_for_besides_has_gauges_of_its_own(tmp_path: Path) -> None:
    families = ["claims", "facts", "context"]
    with stub_judge() as stub, running(tmp_path, stub, metrics=families) as started:
        started.accept(judged(12), "test")
        started.wait_idle()
        exporter = PrometheusExporter(started)
        text = (exporter.render() + exporter.render_detail()).decode()
        calls = stub.stats()["calls"]
        for metric in ("correctness_grade", "answer_relevancy"):
            assert states(started, metric, "judge") == {"scored": 12}
        # the stub finds no claim in some answers
        graded = states(started, "groundedness_grade", "judge")
        assert graded == states(started, "faithfulness", "judge")
        assert graded["scored"] + graded["not_applicable"] == 12
    assert calls == 12 * (1 + 1 + 2)  # claims, facts, and the grades of two passages
    for name, high in (("groundedness_grade", 5), ("context_relevancy", 1)):
        ((labels, value),) = [v for v in values(text, f"rag_{name}_mean") if 'window="24h"' in v[0]]
        assert 'fingerprint="' in labels
        assert 0 < value < high
    assert all(value == 0 for _, value in values(text, "ragmeter_accounting_mismatch"))


def test_a_repeated_question_costs_no_call_even_after_a_restart(tmp_path: Path) -> None:
    with stub_judge() as stub:
        with running(tmp_path, stub) as started:
            started.accept([good(n) for n in range(8)], "test")
            started.wait_idle()
            first = stub.stats()["calls"]
        with running(tmp_path, stub) as started:
            started.accept([good(n) for n in range(8, 60)], "test")
            started.wait_idle()
            assert stub.stats()["calls"] == first
            assert states(started, "relevance", "umbrela") == {"scored": 60}


def test_malformed_answers_leave_reasons_and_nothing_is_lost(tmp_path: Path) -> None:
    with stub_judge(garbage=0.3) as stub, running(tmp_path, stub) as started:
        started.accept(judged(60), "test")
        started.wait_idle()
        found = states(started, "answered", "judge")
        assert set(found) == {"scored", "unscored"}
        assert sum(found.values()) == 60
        assert mismatch(started) == 0


def test_a_judge_that_is_not_there_leaves_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.scorers.llm.admission.PATIENCE", 1.0)
    monkeypatch.setattr("ragmeter.embedded.tier_worker.HOLD_SECONDS", 1.0)
    nowhere = StubProcess("http://127.0.0.1:9/v1")
    with running(tmp_path, nowhere) as started:
        started.accept(judged(30), "test")
        started.wait_idle()
        assert states(started, "error", "builtin") == {"scored": 30}
        assert states(started, "answered", "judge") == {"unscored": 30}


def test_the_second_opinion_and_the_probes_are_measured(tmp_path: Path) -> None:
    with (
        stub_judge() as stub,
        running(
            tmp_path,
            stub,
            live=True,
            concurrency=512,  # or so many at once would be sampled
            second={"share": 1},
            probes={"enabled": True},
        ) as started,
    ):
        started.accept(judged(10, timestamp=time.time()), "test", live=True)
        until(lambda: states(started, "judge_disagreement", "judge").get("scored", 0) == 10)
        with started.lock():
            found = started.windows.estimate("bot", "", "judge_disagreement", "judge", "24h")
        assert found is not None
        assert found.value == 0  # a stub that answers by content agrees with itself

        def probed() -> bool:
            with started.lock():
                return "_judge" in started.windows.services()

        until(probed)
        with started.lock():
            agreement = started.windows.estimate(
                "_judge", "", "judge_probe_agreement", "judge", "24h"
            )
        assert agreement is not None
        assert agreement.samples > 20
        assert 0 < agreement.value < 1  # it answers at random
        assert mismatch(started) == 0


def test_an_upstream_probability_counts_once(tmp_path: Path) -> None:
    with stub_judge() as stub, running(tmp_path, stub) as started:
        started.accept(judged(10, sampling={"probability": 0.5}), "test")
        started.wait_idle()
        kept = started.evidence("bot", "t1")
    assert kept is not None
    assert {item["probability"] for item in kept["results"] if "probability" in item} == {0.5}


def test_mistakes_in_the_settings_are_named() -> None:
    with pytest.raises(ModelError):
        ConfiguredTiers(load_settings(environ={}, overrides={"hhem": {"path": "/nowhere"}}))


@pytest.mark.parametrize("live", [True, False])
def test_the_local_model_steps_back_for_an_application_and_not_for_who_waits(
    monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(slow_tiers, "build_model_tier", lambda _, niceness: asked.append(niceness))
    build_slow_tiers(load_settings(environ={}), {}, live=live)
    ConfiguredTiers(load_settings(environ={}))  # of `ragmeter score`
    assert asked == [NICENESS * live, 0]


@pytest.mark.parametrize("models", [{"cpu_share": 0.2}, {"path": "/nowhere"}])
def test_a_rate_of_zero_loads_no_model_and_says_so(
    caplog: pytest.LogCaptureFixture, models: dict[str, Any]
) -> None:
    sampling = {"model": 0, "people": 0.1, "services": {"bot": {"judge": 0.5}}}
    settings = load_settings(environ={}, overrides={"sampling": sampling, "models": models})
    with caplog.at_level("INFO"):
        tiers = build_slow_tiers(settings, {})
    assert "model" not in tiers.scorers
    assert "model" not in tiers.controllers
    assert [one.getMessage() for one in caplog.records] == [
        "the local model is off: sampling.model is 0"
    ]


def test_a_rate_of_zero_is_of_live_traffic_only() -> None:
    overrides = {"sampling": {"model": 0}, "models": {"cpu_share": 0.2}}
    settings = load_settings(environ={}, overrides=overrides)
    assert "model" in ConfiguredTiers(settings).scorers  # as `ragmeter score` has it
    with pytest.raises(ConfigError, match=r"services\.bot\.model"):
        load_settings(environ={}, overrides={"sampling": {"services": {"bot": {"model": 0}}}})


def test_no_password_of_the_address_is_kept() -> None:
    judge = {"base_url": "http://user:hush@127.0.0.1:9/v1", "model": "m", "api_key": "hush"}
    found = ConfiguredTiers(load_settings(environ={}, overrides={"judge": judge}), watched=True)
    judges = found.judges
    assert judges.probes is not None
    assert "127.0.0.1:9" in str(judges.probes.dump())
    assert "hush" not in str([judges.state(), judges.probes.dump(), judges.labels()])


def test_a_change_of_the_served_model_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    old, new = ServedModel("a", "fp1"), ServedModel("a", "fp2")
    _log_served_model("judge", old, new)
    _log_served_model("judge", new, old)
    assert caplog.text.count("a new series begins") == 2


@pytest.mark.parametrize("builds", [2, 10**9])
def test_builds_that_answer_in_turn_are_one_series(tmp_path: Path, builds: int) -> None:
    """A thousand million: another one in every reply."""
    with stub_judge(builds=builds) as stub, running(tmp_path, stub) as started:
        started.accept(judged(40), "test")
        started.wait_idle()  # by now all of them were heard
        first = stub.stats()["calls"]
        started.accept(judged(100, start=40), "test")
        started.wait_idle()
        assert stub.stats()["calls"] > first
        exporter = PrometheusExporter(started)
        text = (exporter.render() + exporter.render_detail()).decode()
        with started.lock():
            series = {
                scorer: started.windows.states("bot", "", "relevance", scorer, "24h")["scored"]
                for metric, scorer in started.windows.series("bot")
                if metric == "relevance" and scorer.startswith("umbrela")
            }
    assert sum(series.values()) == 100
    assert series["umbrela"] >= 60  # of those after the first 40, all
    info = values(text, "ragmeter_judge_info") or values(text, "ragmeter_judge_info_info")
    assert (
        len({labels.partition('system_fingerprint="')[2].split('"')[0] for labels, _ in info}) == 1
    )


@pytest.mark.parametrize(
    ("second", "judges"),
    [
        ({}, {"judge"}),
        ({"model": "m"}, {"judge"}),
        ({"model": "other"}, {"judge", "second"}),
        ({"api_key": "its own"}, {"judge", "second"}),
    ],
)
def test_a_second_judge_is_one_that_is_asked_in_another_way(
    second: dict[str, Any], judges: set[str]
) -> None:
    judge = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key": "k", "second": second}
    found = ConfiguredTiers(load_settings(environ={}, overrides={"judge": judge}), watched=True)
    assert set(found.judges.state()) == judges


def test_a_fresh_agent_judges_a_burst_of_ten(tmp_path: Path) -> None:
    with (
        stub_judge(0.05) as stub,
        running(tmp_path, stub, live=True, metrics=["answered"]) as started,
    ):
        now = time.time()
        started.accept(judged(10, timestamp=now), "test", live=True)
        started.wait_idle()
        assert states(started, "answered", "judge") == {"scored": 10}


def test_what_a_full_judge_leaves_out_is_logged_once_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        stub_judge(0.05) as stub,
        running(tmp_path, stub, live=True, metrics=["answered"], concurrency=1) as started,
    ):
        now = time.time()
        for begin in range(0, 300, 50):
            started.accept(judged(begin + 50, begin, timestamp=now), "test", live=True)
            time.sleep(0.05)
        started.wait_idle()
        found = states(started, "answered", "judge")
        assert found.get("sampled_out", 0) + found.get("shed", 0) > 0
        assert mismatch(started) == 0
    (record,) = [r for r in caplog.records if "of its rates" in r.message]
    assert record.levelname == "WARNING"
    # 0 where so little would be drawn that traces are shed instead
    assert re.search(r"the judge tier draws at 0(\.\d+)? of its rates: ", record.message)
    assert "judge.concurrency" in record.message


def test_a_folder_of_your_own_scores_in_the_agent_within_its_share_of_a_core(
    tmp_path: Path,
) -> None:
    tree = {
        "state": {"path": str(tmp_path / "s")},
        "sampling": {"model": 1.0},
        "models": {"path": str(write_folder(tmp_path / "m", "tokens")), "cpu_share": 0.1},
    }
    settings = load_settings(environ={}, overrides=tree)
    built: list[SlowTiers] = []

    def build(saved: Mapping[str, Any]) -> SlowTiers:
        built.append(build_slow_tiers(settings, saved))
        return built[-1]

    started = EmbeddedAgent(settings, [], live=False, tiers=build, parts=PARTS)
    started.start()
    try:
        started.accept([good(n) for n in range(30)], "test")
        started.wait_idle()
        until(lambda: states(started, "grounding", "tiny").get("scored") == 30)
        assert mismatch(started) == 0
        kept = started.evidence("bot", "t1")
        assert kept is not None
    finally:
        stop_agent(started, 4)
    ((seconds, _),) = built[0].controllers["model"].balances().values()
    assert seconds == pytest.approx(0.09)  # of a core in a second, with some left
    assert set(built[0].replays) == {"model"}  # a rate of 1 is no sample, or it would bound this
