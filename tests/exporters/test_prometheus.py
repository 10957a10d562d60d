from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.app.parts import PARTS
from ragmeter.core.counters import Exemplar
from ragmeter.core.score import Score
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.questions.catalogue import QUESTIONS
from ragmeter_exporters.families import all_families
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.exporters.fakes import (
    FakeAgent,
    FakeWindows,
    alert,
    as_agent_view,
    estimate,
    everything,
    incident,
)
from tests.parts.questions.samples import HOUR, START, Questions, request, scored

Samples = dict[tuple[str, frozenset[tuple[str, str]]], Any]


def samples(agent: FakeAgent, openmetrics: bool = False) -> Samples:
    """Every sample of both expositions by name and labels; one that is there twice fails."""
    exporter = PrometheusExporter(as_agent_view(agent), registry=CollectorRegistry())
    parse: Callable[[str], Iterable[Any]] = parse_openmetrics if openmetrics else parse_text
    out: Samples = {}
    for render in (exporter.render, exporter.render_detail):
        for family in parse(render(openmetrics=openmetrics).decode("utf-8")):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in out
                out[key] = sample
    return out


def at(found: Samples, name: str, **labels: str) -> float | None:
    sample = found.get((name, frozenset(labels.items())))
    return None if sample is None else sample.value


@pytest.mark.parametrize("openmetrics", [False, True])
def test_an_estimate_gives_four_gauges(openmetrics: bool) -> None:
    found = samples(everything(), openmetrics)
    whole = {"service": "bot", "scorer": "builtin", "window": "1h"}
    assert at(found, "rag_grounding_mean", **whole) == 0.8
    assert at(found, "rag_grounding_ci_lower", **whole) == 0.75
    assert at(found, "rag_grounding_ci_upper", **whole) == pytest.approx(0.85)
    assert at(found, "rag_grounding_effective_samples", **whole) == 36
    assert at(found, "rag_answered_ratio", **whole) == 0.8
    assert at(found, "rag_relevance_mean", model="m-1", **whole) == 2.1
    assert at(found, "rag_relevance_mean", tag_service="inner", **whole) == 2.1


def test_the_share_without_a_value_is_a_gauge_of_whole_services() -> None:
    agent = everything()
    fake = agent.fake
    fake.table["bot", "", "grounding", "umbrela@3f", "1h"] = estimate()._replace(unscored=0.25)
    found = samples(agent)
    whole = {"service": "bot", "window": "1h"}
    name = "rag_grounding_unscored_ratio"
    assert at(found, name, scorer="builtin", **whole) == 0
    assert at(found, name, scorer="umbrela", fingerprint="3f", **whole) == 0.25
    assert at(found, "rag_relevance_unscored_ratio", scorer="builtin", model="m-1", **whole) is None


def test_a_gauge_without_evidence_is_absent() -> None:
    found = samples(everything())
    little = {"service": "bot", "scorer": "builtin", "window": "5m"}
    for name in ("mean", "ci_lower", "ci_upper", "effective_samples"):
        assert at(found, f"rag_relevance_{name}", **little) is None
    assert at(found, "rag_grounding_mean", **little) == 0.8


def test_quantiles_have_their_limits_where_the_evidence_carries_them() -> None:
    found = samples(everything())
    key = {"service": "bot", "stage": "total", "window": "1h"}
    assert at(found, "rag_latency_quantile_seconds", quantile="0.95", **key) == 2.5
    assert at(found, "rag_latency_quantile_ci_lower_seconds", quantile="0.95", **key) == 2.2
    assert at(found, "rag_latency_quantile_ci_upper_seconds", quantile="0.95", **key) == 3.0
    assert at(found, "rag_latency_quantile_seconds", quantile="0.99", **key) == 4.0
    assert at(found, "rag_latency_quantile_ci_upper_seconds", quantile="0.99", **key) is None


def test_buckets_are_cumulative_and_whole() -> None:
    found = samples(everything())
    name = "rag_request_duration_seconds"
    values = {
        dict(labels)["le"]: sample.value
        for (metric, labels), sample in found.items()
        if metric == f"{name}_bucket"
    }
    assert len(values) == 17
    assert (values["0.05"], values["0.1"], values["0.2"], values["0.35"]) == (0, 1, 1, 2)
    assert (values["3.0"], values["60.0"], values["+Inf"]) == (3, 3, 4)
    assert at(found, f"{name}_count", service="bot") == 4
    assert at(found, f"{name}_sum", service="bot") == pytest.approx(101.78)


def test_exemplars_name_traces_in_openmetrics_only() -> None:
    key = ("rag_request_duration_seconds_bucket", frozenset({("service", "bot"), ("le", "3.0")}))
    exemplar = samples(everything(), openmetrics=True)[key].exemplar
    assert exemplar.labels == {"trace_id": "t-2"}
    assert exemplar.value == 2.41
    assert samples(everything())[key].exemplar is None


def test_an_exemplar_that_is_too_long_is_left_out() -> None:
    for length, kept in ((120, True), (121, False)):
        agent = everything()
        label = (("service", "bot"),)
        exemplar = Exemplar("é" * length, 2.5, 1.0)
        agent.counters.observe("rag_request_duration_seconds", label, [2.5], (2.0, 3.0), [exemplar])
        found = samples(agent, openmetrics=True)
        key = (
            "rag_request_duration_seconds_bucket",
            frozenset({("service", "bot"), ("le", "3.0")}),
        )
        assert (found[key].exemplar is not None) is kept


def test_what_did_not_happen_yet_is_zero() -> None:
    agent = FakeAgent()
    agent.fake.table[("new", "", "grounding", "builtin", "1h")] = estimate()
    agent.counters.inc("ragmeter_seen_total", (("metric", "error"), ("scorer", "builtin")), 0)
    found = samples(agent)
    for status in ("ok", "error", "timeout"):
        assert at(found, "rag_requests_total", service="new", status=status) == 0
    assert at(found, "rag_cost_usd_total", service="new") == 0
    assert at(found, "rag_request_duration_seconds_count", service="new") == 0
    pair = {"metric": "error", "scorer": "builtin"}
    assert at(found, "ragmeter_results_total", state="unscored", **pair) == 0
    assert at(found, "ragmeter_label_overflow_total", label="service") == 0
    assert at(found, "ragmeter_state_quarantined_total") == 0


def test_an_empty_reason_is_no_reason_and_order_is_no_difference() -> None:
    agent = FakeAgent()
    pair = (("metric", "error"), ("scorer", "builtin"))
    name = "ragmeter_results_total"
    agent.counters.inc("ragmeter_seen_total", pair, 3)
    agent.counters.inc(name, (*pair, ("state", "scored"), ("reason", "")), 2)
    agent.counters.inc(name, (("state", "scored"), *pair), 1)
    found = samples(agent)
    assert at(found, name, metric="error", scorer="builtin", state="scored") == 3
    assert at(found, "ragmeter_accounting_mismatch", metric="error", scorer="builtin") == 0


def test_accounting_that_does_not_add_up_is_shown() -> None:
    agent = everything()
    pair = (("metric", "grounding"), ("scorer", "builtin"))
    agent.counters.inc("ragmeter_results_total", (*pair, ("state", "shed")), 2)
    lost = (("metric", "error"), ("scorer", "builtin"), ("state", "scored"))
    agent.counters.inc("ragmeter_results_total", lost, 5)
    found = samples(agent)
    name = "ragmeter_accounting_mismatch"
    assert at(found, name, metric="grounding", scorer="builtin") == 2
    assert at(found, name, metric="error", scorer="builtin") == 5


@pytest.mark.parametrize(("results", "expected"), [(2, 1), (1, 1), (5, 3)])
def test_a_negative_waiting_count_is_never_hidden_by_the_other_counts(
    results: int, expected: int
) -> None:
    """One trace seen and -1 waiting: with two results the plain distance would be 0."""
    agent = FakeAgent(waiting_results={("relevance", "umbrela"): -1})
    pair = (("metric", "relevance"), ("scorer", "umbrela"))
    agent.counters.inc("ragmeter_seen_total", pair, 1)
    agent.counters.inc("ragmeter_results_total", (*pair, ("state", "late")), results)
    name = "ragmeter_accounting_mismatch"
    assert at(samples(agent), name, metric="relevance", scorer="umbrela") == expected


def test_health() -> None:
    agent = FakeAgent(state=AgentHealth(problems=("disk full",), queue_depth=7))
    found = samples(agent)
    assert at(found, "ragmeter_ready") == 0
    assert at(found, "ragmeter_queue_depth") == 7
    # a worker on Kafka does not know how far it is behind: that is no 0
    assert at(found, "ragmeter_oldest_unprocessed_seconds") is None
    assert at(found, "ragmeter_processing_lag_seconds") is None
    agent.fake.now = None
    assert at(samples(agent), "ragmeter_stream_time_seconds") is None
    assert at(samples(everything()), "ragmeter_ready") == 1


def test_only_firing_alerts_count_and_the_others_are_zero() -> None:
    agent = FakeAgent(alert_list=[alert(), alert(id="2"), alert(id="3", state="pending")])
    agent.alert_list.append(alert(id="4", rule="Other", severity="warning", state="resolved"))
    found = samples(agent)
    name = "ragmeter_alerts_firing"
    assert at(found, name, alertname="GroundingLow", severity="critical") == 2
    assert at(found, name, alertname="Other", severity="warning") == 0


def test_a_counter_that_nobody_described_is_not_lost() -> None:
    agent = FakeAgent()
    agent.counters.inc("ragmeter_new_total", (("kind", "x"),), 4)
    assert at(samples(agent), "ragmeter_new_total", kind="x") == 4


def test_process_metrics_come_from_the_injected_registry() -> None:
    text = PrometheusExporter(as_agent_view(everything())).render(openmetrics=True).decode()
    assert "process_cpu_seconds_total " in text
    assert text.count("# EOF") == 1
    assert text.endswith("# EOF\n")


def test_hostile_names_stay_inside_their_labels() -> None:
    agent = FakeAgent(segments=["model"])
    service, model = 'a"} 1\nrag_fake 1\n#', 'm\\"\n'
    for metric in metric_specs():
        agent.fake.table[(service, f"model={model}", metric, "builtin", "1h")] = estimate()
    found = samples(agent, openmetrics=True)
    whole = {"service": service, "scorer": "builtin", "window": "1h", "model": model}
    assert at(found, "rag_grounding_mean", **whole) == 0.8
    assert not any(name == "rag_fake" for name, _ in found)


def test_help_says_what_an_interval_is_about() -> None:
    ends = {
        family.name: family.help.partition(", ")[2]
        for family in all_families(PARTS)
        if family.name.startswith("rag_") and "_ci_" in family.name
    }
    process, traffic = "about the process behind the traffic", "about all traffic of the window"
    assert ends["rag_error_ci_lower"] == f"{process}."
    assert ends["rag_latency_quantile_ci_upper_seconds"] == f"{process}."
    assert ends["rag_faithfulness_ci_upper"] == f"{traffic}, of which a sample is scored."
    both = ends["rag_answered_ci_lower"]
    assert traffic in both
    assert f"{process} where every trace is (builtin)" in both
    assert ends["rag_helpfulness_ci_lower"] == "about the labelled traffic."


def test_the_first_exposition_has_no_metric_of_a_single_scorer() -> None:
    exporter = PrometheusExporter(as_agent_view(everything()), registry=CollectorRegistry())
    first = exporter.render().decode("utf-8")
    assert "rag_grounding_mean" not in first
    assert 'service="bot",model=' not in first
    assert (
        'rag_latency_seconds{service="bot",stage="total",quantile="0.95",window="1h"} 2.5' in first
    )
    assert "rag_requests_total" in first


def test_an_open_incident_is_one_series() -> None:
    agent = everything()
    agent.incident_list.append(incident(id="f" * 16, state="over", ended_at=1.0))
    found = samples(agent)
    labels = {"service": "bot", "incident": "0a1b2c3d4e5f6071", "severity": "page"}
    assert at(found, "rag_incident_open", **labels) == 1
    assert sum(name == "rag_incident_open" for name, _ in found) == 1


def judged_and_labelled(number: int) -> list[Score]:
    """What the model, a judge and people say of a request: of every question."""
    good = float(number % 3 > 0)
    found = [scored("grounding", good, "mini"), scored("relevance", 2.0, "mini")]
    if number % 2 == 0:
        drawn = {"probability": 0.5, "stratum": "rest:3", "cheap": 0.6}
        found += [
            scored("answered", good, "judge", **drawn),
            scored("faithfulness", good, "judge", **drawn),
            scored("reciprocal_rank", good, "umbrela", **drawn),
            scored("citation_precision", good, "judge", **drawn),
            scored("nugget_vital", good, "autonuggetizer", **drawn),
        ]
    if number % 2 == 1:
        asked = {"probability": 0.5, "stratum": "people", "cheap": 0.6}
        found += [
            scored("answered", good, "people", **asked),
            scored("grounding", good, "people", **asked),
            scored("context_relevancy", good, "people", **asked),
        ]
    return found


@pytest.mark.parametrize("sources", ["model", "judge and labels"])
def test_a_service_with_many_versions_has_at_most_150_samples(sources: str) -> None:
    """By the default segments."""
    questions = Questions()
    requests = []
    for number in range(600):
        tags = {
            "model": f"m-{number % 6}",
            "prompt_version": f"p-{number % 5}",
            "index_version": f"i-{number % 7}",
        }
        results = judged_and_labelled(number)
        if sources == "model":
            results = results[:1]
        at = START + number * HOUR / 100
        requests.append(request(number, at, tags=tags, results=results))
    questions.apply(requests)
    questions.answers()
    agent = FakeAgent(
        fake=cast(FakeWindows, questions.aggregator.windows),
        segments=questions.settings.segments,
        counters=questions.aggregator.counters,
        measured=list(questions.aggregator.parts.samples()),
    )
    text = PrometheusExporter(as_agent_view(agent), registry=CollectorRegistry()).render().decode()
    found = [line for line in text.splitlines() if 'service="bot"' in line]
    # a segment with few labels has no level of its own
    assert 3 * 2 * 3 <= sum(line.startswith("rag_segment_ratio") for line in found) <= 3 * 2 * 4
    assert 80 < len(found) <= 150
    if sources == "judge and labels":
        shares = [question.name for question in QUESTIONS if question.unit == "share"]
        for name in shares:
            assert any(line.startswith(f"rag_{name}_ratio") for line in found), name
