from __future__ import annotations

import re
from typing import Any

from ragmeter.alerts.rules import load_rules
from ragmeter.cli.main import app
from ragmeter.metrics.registry import metric_specs
from typer.testing import CliRunner


def metrics(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["metrics", *arguments])


def test_every_metric_is_listed() -> None:
    table = metrics("list").stdout
    assert [name for name in metric_specs() if f" {name} " not in table] == []


def test_a_metric_is_shown_with_all_that_the_registry_knows() -> None:
    for name, spec in metric_specs().items():
        shown = metrics("show", name).stdout
        for text in (spec.tier, spec.needs, spec.formula, spec.source, spec.gauge):
            assert text in shown, (name, text)
        assert spec.source, name


def test_default_rules_are_those_of_the_balanced_profile() -> None:
    shown = "".join(metrics("show", name).stdout for name in metric_specs())
    notified = set(re.findall(r"(\w+): (?:critical|warning|info) if ", shown))
    assert notified == {rule.name for rule in load_rules() if rule.metric}
    assert "< 0.85" in metrics("show", "faithfulness").stdout


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
