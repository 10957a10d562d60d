"""The dashboards as they stand in the repository: what can be said of them without a Prometheus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.alerts.rule_sets import runbook_pages
from ragmeter.alerts.rules import load_rules
from ragmeter.app.parts import PARTS
from ragmeter.metrics.registry import metric_specs
from ragmeter_exporters.families import all_families

from deploy.dashboards import files, thresholds
from deploy.dashboards.__main__ import main
from deploy.dashboards.files import DASHBOARDS, generated
from tests.deploy.dashboard_queries import boards, panels, queries
from tests.deploy.tools import ROOT

BOARDS = boards()
DATASOURCE = ROOT / "deploy/compose/grafana/provisioning/datasources/prometheus.yaml"

INSTRUMENTS = "What the chosen agents have"

# Alerts that no panel is about, and why.
ELSEWHERE = {
    "RagCanariesAbsent": "the panels of canaries have a gap then",
    "RagScoresAbsent": "every panel of quality is empty then",
    "RagTimeoutsHigh": "a row of its own in the table of now, and the budget",
    "RagTimeoutsElevated": "as RagTimeoutsHigh",
}


def names(expr: str) -> set[str]:
    """The metrics of a query, but for those that a matcher of `__name__` picks."""
    return set(re.findall(r"\b(?:rag|ragmeter|process)_\w+", re.sub(r'"[^"]*"', "", expr)))


def each() -> list[tuple[str, dict[str, Any]]]:
    return [(name, panel) for name, board in BOARDS.items() for panel in panels(board)]


def test_committed_files_are_those_of_the_code() -> None:
    assert {path: path.read_text() for path in DASHBOARDS.glob("*.json")} == generated()
    assert main(["--check"]) == 0


def test_check_names_what_is_not_in_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {tmp_path / path.name: text for path, text in generated().items()}
    monkeypatch.setattr("deploy.dashboards.__main__.generated", lambda: made)
    monkeypatch.setattr("deploy.dashboards.__main__.DASHBOARDS", tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "quality.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert sorted(capsys.readouterr().out.split("\n")) == [
        "",
        "old.json is not in step",
        "quality.json is not in step",
    ]
    assert main([]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in made}


@pytest.mark.parametrize("name", BOARDS)
def test_places_and_identifiers_are_each_ones_own(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == f"ragmeter-{name}"
    rows = [panel for panel in board["panels"] if panel["type"] == "row"]
    numbers = [panel["id"] for panel in [*rows, *panels(board)]]
    assert len(set(numbers)) == len(numbers)
    folded = [row["panels"] for row in rows if row["collapsed"]]
    for level in (board["panels"], *folded):
        assert_places_are_apart(level)
    tops = sorted(((row["gridPos"]["y"], row) for row in rows), key=lambda top: top[0])
    for (y, row), (below, _) in pairwise(tops):
        assert not row["collapsed"] or below == y + 1  # no room is left for what is folded


def assert_places_are_apart(level: Sequence[dict[str, Any]]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in level:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_panel_says_what_its_number_is() -> None:
    for name, panel in each():
        assert panel["title"], name
        assert len(panel["description"].split()) >= 6, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_what_most_agents_lack_is_folded_and_says_so_when_it_is_empty() -> None:
    folded = {
        row["title"]: [panel["fieldConfig"]["defaults"]["noValue"] for panel in row["panels"]]
        for board in BOARDS.values()
        for row in board["panels"]
        if row["type"] == "row" and row.get("collapsed")
    }
    assert len(folded) == 7
    for title, texts in folded.items():
        assert title.startswith("With ")
        assert texts
        assert all(texts)
    of_judge = re.compile(r"\brag(meter)?_(judge|nugget|faithfulness|precision_at_k)_")
    for name, panel in each():
        found = " ".join(names(" ".join(target["expr"] for target in panel["targets"])))
        if of_judge.search(found) and panel["title"] not in ("Every metric now", INSTRUMENTS):
            assert "judge" in panel["fieldConfig"]["defaults"]["noValue"].lower(), (name, panel)


def test_what_is_configured_is_asked_of_the_agents() -> None:
    for name in ("quality", "retrieval", "judge", "agent"):
        (panel,) = [one for one in panels(BOARDS[name]) if one["title"] == INSTRUMENTS]
        assert "ragmeter_judge_up" in panel["targets"][0]["expr"]
        texts = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        assert texts["0"]["text"].startswith("not configured")


def test_no_estimate_without_its_interval() -> None:
    """Nor without samples: on every dashboard that shows quality the table of now has them."""
    gauges = {spec.gauge for spec in metric_specs().values()}
    seen = set()
    for name, panel in each():
        found = {one for target in panel["targets"] for one in names(target["expr"])}
        for gauge in gauges & found:
            stem = gauge.rsplit("_", 1)[0]
            assert {f"{stem}_ci_lower", f"{stem}_ci_upper"} <= found, (name, panel["title"])
            seen.add(gauge)
        if "rag_latency_quantile_seconds" in found:
            ends = {f"rag_latency_quantile_ci_{end}_seconds" for end in ("lower", "upper")}
            assert ends <= found, (name, panel["title"])
    assert len(seen) > 15
    tables = [panel for _, panel in each() if "__name__=~" in str(panel["targets"])]
    assert len(tables) == 3
    for panel in tables:
        columns = panel["transformations"][1]["options"]["renameByName"].values()
        assert {"Estimate", "95 % from", "to", "Samples"} <= set(columns)


def test_bands_are_filled_between_their_ends() -> None:
    bands = 0
    for _, panel in each():
        overrides = {
            one["matcher"]["options"]: {each_["id"]: each_["value"] for each_ in one["properties"]}
            for one in panel["fieldConfig"]["overrides"]
        }
        for name, own in overrides.items():
            if "custom.fillBelowTo" in own:
                bands += 1
                stem = name.removesuffix(" upper")
                assert own["custom.fillBelowTo"] == f"{stem} lower"
                assert {stem, f"{stem} lower"} <= set(overrides)
    assert bands > 30


def test_every_name_is_exported() -> None:
    known = {family.name for family in all_families(PARTS)}
    histograms = {"rag_trace_duration_seconds", "ragmeter_judge_duration_seconds"}
    known |= {f"{name}_{end}" for name in histograms for end in ("bucket", "count", "sum")}
    found: set[str] = set()
    for name, board in BOARDS.items():
        for query in queries(name, board):
            assert names(query.expr) <= known, (query.panel, names(query.expr) - known)
            found |= names(query.expr)
        for variable in board["templating"]["list"]:
            asked = set(re.findall(r"\b((?:rag|ragmeter)_\w+)", str(variable.get("query"))))
            assert asked <= known
    # all that the agent says of itself is on some panel, but for what another says as well; a part
    # can be taken out, so that no board needs one
    own = {family.name for family in all_families(()) if family.name.startswith("ragmeter_")}
    unseen = {
        *("ragmeter_stream_time_seconds", "ragmeter_seen_total", "ragmeter_drift_alarms_total"),
        *("ragmeter_otlp_dropped_total", "ragmeter_otlp_open_bytes"),
    }
    assert own - found - {name.removesuffix("_bucket") for name in found} == unseen


def test_every_alert_is_told_of_where_its_number_is() -> None:
    notified = " ".join(panel["description"] for _, panel in each())
    assert {name for name in runbook_pages() if name not in notified} == set(ELSEWHERE)


def test_links_lead_to_runbooks_that_there_are() -> None:
    links = {link["url"] for _, panel in each() for link in panel["links"]}
    assert links
    for url in links:
        page = url.removeprefix("${runbooks}/")
        assert page in runbook_pages().values(), url
        assert (ROOT / "docs" / "runbooks" / page).is_file(), url


def test_lines_lie_where_the_rules_fire() -> None:
    (grounding,) = [rule for rule in load_rules() if rule.name == "RagGroundingLow"]
    for _, panel in each():
        if panel["title"].startswith("Grounding"):
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert steps == [
                {"color": "orange", "value": None},
                {"color": "transparent", "value": grounding.threshold},
            ]
    found = thresholds.metric("error").steps()
    assert found == [(None, ""), (0.01, "orange"), (0.05, "red")]
    assert thresholds.latency("total", 0.95).steps() == [(None, ""), (10, "orange"), (30, "red")]
    assert thresholds.health("RagmeterLagging").lines[0].value == 300
    for _, panel in each():
        values = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert all(one < two for one, two in pairwise(values[1:]))


def test_every_runbook_in_the_description_has_its_link() -> None:
    for _, panel in each():
        notified = [
            name for name in runbook_pages() if re.search(rf"\b{name}\b", panel["description"])
        ]
        linked = {link["url"].removeprefix("${runbooks}/") for link in panel["links"]}
        named = {runbook_pages()[name] for name in notified}
        assert linked <= named
        if "Alerts:" in panel["description"] or "Dashed:" in panel["description"]:
            assert linked == named, panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_variables(name: str) -> None:
    variables = {one["name"]: one for one in BOARDS[name]["templating"]["list"]}
    wanted = {"datasource", "job", "instance", "page", "runbooks"}
    assert wanted <= set(variables)
    text = str(BOARDS[name]["panels"]) + str(BOARDS[name]["links"])
    for variable in set(variables) - {"datasource", "job", "instance"}:
        assert f"${variable}" in text or f"${{{variable}" in text, variable
    if name != "agent":
        assert {"service", "window"} <= set(variables)
    if name not in ("agent", "judge"):
        assert "scorer" in variables


def test_exemplars_lead_to_the_page_of_their_trace() -> None:
    (source,) = yaml.safe_load(DATASOURCE.read_text())["datasources"]
    (found,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert found["name"] == "trace_id"  # as ragmeter_exporters.prometheus names it
    assert re.sub(r"\$\$\{[^}]+\}", "X", found["url"]) == "http://127.0.0.1:9464/trace/X/X"
    exemplars = [
        panel["title"]
        for _, panel in each()
        for target in panel["targets"]
        if target.get("exemplar")
    ]
    assert exemplars == ["Single slow requests"]


def test_boards_are_named_by_their_files() -> None:
    assert [board.name for board in files.BOARDS] == [
        *("overview", "quality", "retrieval", "judge", "agent"),
    ]
