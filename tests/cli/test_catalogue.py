from __future__ import annotations

import json
from typing import Any

from ragmeter.alerts.rules import load_rules
from ragmeter.cli.main import app
from ragmeter.metrics.registry import metric_specs
from typer.testing import CliRunner


def metrics(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["metrics", *arguments])


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(metrics("list", "--json").stdout)
    return found


def test_every_metric_is_listed_with_all_that_the_registry_knows() -> None:
    found = entries()
    assert [one["name"] for one in found] == list(metric_specs())
    for one in found:
        spec = metric_specs()[one["name"]]
        assert (one["tier"], one["needs"], one["formula"]) == (spec.tier, spec.needs, spec.formula)
        assert (one["low"], one["high"], one["good"]) == (spec.low, spec.high, spec.good)
        assert (one["source"], one["gauge"]) == (spec.source, spec.gauge)
        assert one["source"], one["name"]
    table = metrics("list").stdout
    assert [name for name in metric_specs() if f" {name} " not in table] == []


def test_default_rules_are_those_of_the_balanced_profile() -> None:
    by_name = {one["name"]: one["default_rules"] for one in entries()}
    notified = {rule["name"] for rules in by_name.values() for rule in rules}
    assert notified == {rule.name for rule in load_rules() if rule.metric}
    assert [rule["threshold"] for rule in by_name["grounding"]] == [0.45, 0.7]


def test_one_metric_with_its_formula() -> None:
    shown = metrics("show", "ndcg_at_k:5").stdout
    assert shown.startswith("metric:       ndcg_at_k\n")
    assert "formula:      DCG / ideal DCG, gain 2^grade - 1" in shown
    assert "source:       Järvelin and Kekäläinen 2002" in shown
    assert "default rule: none" in shown


def test_an_unknown_name_is_a_mistake() -> None:
    done = metrics("show", "graunding")
    assert done.exit_code == 2
    assert "metric 'graunding' is not known" in " ".join(done.output.split())
