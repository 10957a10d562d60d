"""The dashboard as it stands in the repository: what can be said of it without a Prometheus."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.alerts.rule_sets import runbook_pages
from ragmeter.app.parts import PARTS
from ragmeter.metrics.registry import metric_specs
from ragmeter_exporters.families import LATENCY, all_families, quality_families

from deploy.dashboards.__main__ import main
from deploy.dashboards.files import DASHBOARDS, generated
from tests.deploy.dashboard_queries import boards, panels, queries
from tests.deploy.tools import ROOT

BOARDS = boards()
DATASOURCE = ROOT / "deploy/compose/grafana/provisioning/datasources/prometheus.yaml"


QUESTIONS = ("works", "answered", "grounded", "retrieved", "cited", "complete")


def names(expr: str) -> set[str]:
    """The metrics of a query, also those that a matcher of `__name__` picks, for each question."""
    plain = set(re.findall(r"\b(?:rag|ragmeter|process)_\w+", re.sub(r'"[^"]*"', "", expr)))
    for pattern in re.findall(r'__name__=~?"([^"]+)"', expr):
        found = re.fullmatch(r"rag_(\$\{question\}|\(\?:([a-z|]+)\))_(\w+)", pattern)
        assert found is not None, pattern
        # nothing that sees every request knows of complete answers
        moving = QUESTIONS[:-1] if found[3].startswith("change_") else QUESTIONS
        asked = found[2].split("|") if found[2] else moving
        plain |= {f"rag_{question}_{found[3]}" for question in asked}
    return plain


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
    (tmp_path / "service.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    capsys.readouterr()
    assert main(["--check"]) == 1
    assert sorted(capsys.readouterr().out.split("\n")) == [
        "",
        "old.json is not in step",
        "service.json is not in step",
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
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
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


def test_two_boards_and_few_panels() -> None:
    assert set(BOARDS) == {"service", "itself"}
    assert len(list(panels(BOARDS["service"]))) <= 14
    titles = [panel["title"] for panel in panels(BOARDS["service"]) if panel["type"] == "stat"]
    assert titles == [
        "Works",
        "Fast",
        "Answered",
        "Grounded",
        "Retrieved",
        "Cited",
        "Complete",
        "Cost",
    ]


def test_no_estimate_without_its_interval() -> None:
    """A chart has its band; the colour of a tile is that of the upper end."""
    seen = 0
    for name, panel in each():
        found = {one for target in panel["targets"] for one in names(target["expr"])}
        for question in QUESTIONS:
            if panel["type"] == "timeseries" and f"rag_{question}_ratio" in found:
                ends = {f"rag_{question}_{end}_ratio" for end in ("lower", "upper")}
                assert ends <= found, (name, panel["title"])
                seen += 1
            if f"rag_{question}_change_points" in found:
                ends = {f"rag_{question}_change_{end}_points" for end in ("lower", "upper")}
                assert ends <= found, (name, panel["title"])
                seen += 1
            if panel["title"] == question.capitalize():
                assert found == {
                    f"rag_{question}_ratio",
                    f"rag_{question}_upper_ratio",
                    f"rag_{question}_goal_ratio",
                    "rag_question_source_info",
                }
                seen += 1
    assert seen == 3 * len(QUESTIONS) - 1  # of complete answers there is no movement


def test_tiles_are_red_where_the_goal_is_missed() -> None:
    tiles = [panel for panel in panels(BOARDS["service"]) if panel["type"] == "stat"]
    for panel in tiles[:-1]:
        colours = {
            one["matcher"]["options"]: one["properties"][0]["value"]["fixedColor"]
            for one in panel["fieldConfig"]["overrides"]
        }
        assert colours == {"A": "text", "B": "green", "C": "red"}
        assert all(one["instant"] for one in panel["targets"])
        assert panel["fieldConfig"]["defaults"]["noValue"] == "not enough yet"


def test_nothing_needs_the_details() -> None:
    detail = {family.name for spec in metric_specs().values() for family in quality_families(spec)}
    detail |= {family.name for family in LATENCY[:3]}
    own = {f"rag_{question}_ratio" for question in QUESTIONS}
    for name, board in BOARDS.items():
        for query in queries(name, board):
            found = names(query.expr) - own
            assert not found & detail, (query.panel, found & detail)
            # a detail of the same name is by scorer, and would have no window of a question
            assert "scorer=" not in query.expr


def test_bands_are_filled_between_their_ends() -> None:
    bands = 0
    for _, panel in each():
        overrides = {
            one["matcher"]["options"]: {each_["id"]: each_["value"] for each_ in one["properties"]}
            for one in panel["fieldConfig"]["overrides"]
        }
        legends = [target.get("legendFormat") for target in panel["targets"]]
        for name, own in overrides.items():
            if "custom.fillBelowTo" in own:
                bands += 1
                assert name == "upper"
                assert own["custom.fillBelowTo"] == "lower"
                assert {"upper", "lower"} <= set(overrides)
                assert {"upper", "lower"} <= set(legends)
    assert bands == 2


def test_every_name_is_exported() -> None:
    known = {family.name for family in all_families(PARTS)}
    known |= {f"rag_request_duration_seconds_{end}" for end in ("bucket", "count", "sum")}
    for name, board in BOARDS.items():
        for query in queries(name, board):
            assert names(query.expr) <= known, (query.panel, names(query.expr) - known)
        for variable in board["templating"]["list"]:
            asked = set(re.findall(r"\b((?:rag|ragmeter)_\w+)", str(variable.get("query"))))
            assert asked <= known


def test_links_lead_to_runbooks_that_there_are() -> None:
    links = {link["url"] for _, panel in each() for link in panel["links"]}
    assert links
    for url in links:
        page = url.removeprefix("${runbooks}/")
        assert page in runbook_pages().values(), url
        assert (ROOT / "docs" / "runbooks" / page).is_file(), url


def test_colours_change_at_rising_values() -> None:
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
        if "Alerts:" in panel["description"]:
            assert linked == named, panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_variables(name: str) -> None:
    variables = {one["name"]: one for one in BOARDS[name]["templating"]["list"]}
    chosen = {"service", "question"} if name == "service" else set()
    assert set(variables) == {"datasource", "job", "instance", "page", "runbooks", *chosen}
    if chosen:
        assert [one["value"] for one in variables["question"]["options"]] == list(QUESTIONS)
    text = str(BOARDS[name]["panels"]) + str(BOARDS[name]["links"])
    for variable in set(variables) - {"datasource", "job", "instance"}:
        assert f"${variable}" in text or f"${{{variable}" in text, variable


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
