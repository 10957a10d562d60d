"""The committed rules are those of the generator, and say nothing that is not so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.alerts.rule_sets import (
    RUNBOOK_BASE,
    load_runbooks,
    runbook_link,
    runbook_pages,
)
from ragmeter.alerts.rules import default_documents, load_rules
from ragmeter.app.parts import PARTS
from ragmeter.cli.main import app
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.drift.signals import DRIFT_RULE
from ragmeter_exporters.families import all_families
from ragmeter_exporters.rules.health_rules import HEALTH_RULES
from typer.testing import CliRunner

from tests.command_lines import unknown
from tests.exporters.rules.annotations import FILES

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
COMMITTED = ROOT / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
CALL = ["rules", "prometheus", "--config", "{}/objectives.yaml"]

WRITTEN = (
    "ragmeter rules prometheus --config deploy/prometheus/objectives.yaml"
    " > helm/ragmeter/files/ragmeter.rules.yaml"
)
SECTIONS = [
    "What it means",
    "Who is hurt",
    "How to look",
    "Likely causes",
    "What to do",
    "When it resolves",
]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(COMMITTED.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """One of each name; error budgets have one for each objective."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def printed(*call: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(call))
    return done.exit_code, done.stdout, done.stderr


def test_the_committed_file_is_what_the_command_writes() -> None:
    status, out, err = printed(*(part.format(FOLDER) for part in CALL))
    assert (status, err) == (0, "")
    assert out == COMMITTED.read_text("utf-8"), WRITTEN


def test_segments_do_not_multiply_what_fires(tmp_path: Path) -> None:
    """One cause fires once, whichever segments are set."""
    file = tmp_path / "segments.yaml"
    tree = yaml.safe_load((FOLDER / "objectives.yaml").read_text("utf-8"))
    file.write_text(yaml.safe_dump(tree | {"segments": ["model", "tenant"]}))
    status, out, _ = printed("rules", "prometheus", "--config", str(file))
    assert (status, out) == (0, COMMITTED.read_text("utf-8"))
    assert "rag_segment_" not in out


def test_it_holds_the_rules_of_parts_and_the_health_of_the_agent_alone() -> None:
    of_parts = {alert.name for part in PARTS for alert in part.prometheus_alerts}
    assert set(alerts()) == of_parts | {rule.name for rule in HEALTH_RULES}
    own = {rule.name for rule in load_rules()} | {DRIFT_RULE}
    assert not set(alerts()) & own, "a rule has one place"


def selectors(expr: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every metric that an expression reads, with the labels of its matchers."""
    bare = re.sub(r"\b(by|on|ignoring|without) \([^)]*\)", "", expr)
    bare = re.sub(r"\[\w+:\w*\]", "", bare)  # the steps of a subquery
    for found in re.finditer(r"([A-Za-z_:][\w:]*)(?:\{([^}]*)\})?|\{([^}]*)\}", bare):
        name = found.group(1)
        inner = found.group(2) or found.group(3)
        if name is not None and not re.match(r"rag_|ragmeter_|up$|.*:", name):
            continue  # a function, an operator
        labels = dict(re.findall(r'(\w+)(?:=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', inner or ""))
        for one in _names(name, labels):
            yield one, labels


def _names(name: str | None, labels: Mapping[str, str]) -> list[str]:
    """`{__name__=~"a|b"}` reads both."""
    if name is not None:
        return [name]
    pattern = labels.get("__name__", "")
    known = [family.name for family in all_families(PARTS) if re.fullmatch(pattern, family.name)]
    recorded = [rule["record"] for rule in rules() if re.fullmatch(pattern, rule.get("record", ""))]
    return known + recorded or [pattern]


def test_rules_read_only_what_the_agent_exports() -> None:
    known = {family.name: family for family in all_families(PARTS)}
    made = {rule["record"] for rule in rules() if "record" in rule}
    read = set()
    for rule in rules():
        for name, labels in selectors(rule["expr"]):
            read.add(name)
            if name in made or name == "up":
                continue
            stem = re.sub(r"_(count|sum|bucket)$", "", name)
            family = known.get(name) or known[stem]
            allowed = {*family.labels, "job", "instance", "__name__"}
            assert set(labels) <= allowed, (rule.get("alert"), name)
    assert made <= set(re.findall(r"[\w:]+", " ".join(r["expr"] for r in rules())))
    assert len(read) > 30


def test_a_misspelt_name_or_label_would_be_found() -> None:
    assert list(selectors('rate(ragmeter_quue{a="1"}[5m]) and rag_x > 1')) == [
        ("ragmeter_quue", {"a": "1"}),
        ("rag_x", {}),
    ]


def test_gauges_are_read_over_time_so_that_a_failed_scrape_ends_no_alert() -> None:
    gauges = {family.name for family in all_families(PARTS) if family.type in ("gauge", "info")} | {
        "up"
    }
    for rule in alerts().values():
        for found in re.finditer(r"(\w+\()?(?<![\w:])((?:rag|ragmeter)_\w+|up)\b", rule["expr"]):
            function, name = found.groups()
            if name in gauges:
                assert (function or "").endswith("_over_time("), (rule["alert"], name)


def test_every_alert_has_severity_words_and_keeps_firing() -> None:
    for rule in alerts().values():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["keep_firing_for"]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert_or_an_incident() -> None:
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOK_BASE}/{runbook_pages()[name]}"
    own = {entry["name"] for document in default_documents() for entry in document["rules"]}
    assert set(runbook_pages()) == set(alerts()) | own | {DRIFT_RULE}
    for name, file in runbook_pages().items():
        page = (RUNBOOKS / file).read_text("utf-8")
        assert f"`{name}`" in page, name
        assert re.findall(r"^## (.*)$", page, re.M) == SECTIONS, file
    of_incidents = {f"{page}.md" for page, one in load_runbooks().items() if one.get("incidents")}
    pages = {*runbook_pages().values(), *of_incidents, "README.md"}
    assert {path.name for path in RUNBOOKS.glob("*.md")} == pages


def test_runbooks_name_what_exists() -> None:
    known = {family.name for family in all_families(PARTS)}
    live = {family.name for family in all_families(PARTS) if "absent in a replay" in family.help}
    index = (RUNBOOKS / "README.md").read_text("utf-8")
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    sections = {key.split(".")[0] for key in re.findall(r"^\| `([a-z_.]+)`", reference, re.M)}
    for path in sorted(RUNBOOKS.glob("*.md")):
        text = path.read_text("utf-8")
        for name in re.findall(r"(?<![\w:])((?:rag|ragmeter)_[a-z0-9_]+)", text):
            stem = re.sub(r"_(count|sum|bucket)$", "", name)
            assert {name, stem} & known, (path.name, name)
            assert name not in live or "absent in a replay" in text, (path.name, name)
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            assert (path.parent / target).exists(), (path.name, target)
        for key in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", text):
            if key.split(".")[0] in sections:
                assert f"`{key}`" in reference, (path.name, key)
        for code in re.findall(r"`([^`\n]+)`", text):
            if command := re.search(r"(?:^| )ragmeter ([a-z].*)", code):
                assert unknown(command[1].split()) == [], (path.name, code)
        assert path.name == "README.md" or f"({path.name})" in index
    assert set(re.findall(r"`(Rag\w+)`", index)) == set(runbook_pages())


def test_a_command_that_there_is_not_would_be_found() -> None:
    assert unknown(["kafka", "lags", "--config", "x"]) == ["lags"]
    assert unknown(["kafka", "init", "--aply"]) == ["--aply"]
    assert unknown(["kafka", "dlq", "show", "3", "--config", "x"]) == []


def test_every_rule_has_a_unit_test_that_fires_and_one_that_does_not() -> None:
    quiet: set[str] = set()
    fires: set[str | tuple[str, str]] = set()
    words: set[tuple[str, bool]] = set()
    text = ""
    for file in FILES:
        text += file.read_text("utf-8")
        for group in yaml.safe_load(file.read_text("utf-8"))["tests"]:
            for test in group.get("alert_rule_test", []):
                (fires if test["exp_alerts"] else quiet).add(test["alertname"])
                for alert in test["exp_alerts"]:
                    words.add((test["alertname"], "exp_annotations" in alert))
                    if "slo" in alert["exp_labels"]:
                        fires.add((test["alertname"], alert["exp_labels"]["slo"]))
    assert (set(alerts()) - quiet, set(alerts()) - fires) == (set(), set())
    for rule in rules():
        if "slo" in rule.get("labels", {}):
            assert (rule["alert"], rule["labels"]["slo"]) in fires
    assert {name for name, has in words if not has} == set()
    assert [r["record"] for r in rules() if "record" in r and r["record"] not in text] == []


def test_links_begin_with_what_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_ALERTS__RUNBOOK_URL", "https://wiki.test/rag/")
    status, out, _ = printed("rules", "prometheus")
    assert status == 0
    assert "runbook_url: https://wiki.test/rag/agent-down.md" in out
    assert RUNBOOK_BASE not in out
    assert runbook_link("SomebodysOwn") == f"{RUNBOOK_BASE}/README.md"


def test_every_gauge_of_a_default_rule_is_of_a_known_metric() -> None:
    assert {rule.metric for rule in load_rules() if rule.metric} <= set(metric_specs())
