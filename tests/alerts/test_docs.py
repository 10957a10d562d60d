"""docs/alerts.md says everything about rules, and nothing that is not so."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from typing import get_args

import pytest
import yaml
from ragmeter.alerts.alert import TEMPLATE_FIELDS, Alert
from ragmeter.alerts.rule_sets import incident_runbook, load_runbooks
from ragmeter.alerts.rules import (
    RULE_PROFILES,
    AlertRule,
    LatencyCondition,
    UnscoredCondition,
    default_documents,
    parse_rules,
)
from ragmeter.core.score import Score, ScoreState
from ragmeter.parts.views import Incident, IncidentKind
from ragmeter.windows.failures import FAILURE_REASONS, TRACE_REASONS, failure_reason

PAGE = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """From a heading to the next one of its level or above."""
    match = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,3}} |\Z)", PAGE, re.M | re.S)
    assert match is not None, f"no section {title!r}"
    return match.group(2)


def first_cells(title: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` ", section(title), re.M)


def test_every_rule_key_has_its_row_and_no_row_is_without_a_key() -> None:
    keys = [field.alias or name for name, field in AlertRule.model_fields.items()]
    assert sorted(first_cells("Keys")) == sorted(keys)


def test_every_key_of_latency_is_told() -> None:
    for name in LatencyCondition.model_fields:
        assert f"`latency.{name}`" in section("Keys")
    for name in UnscoredCondition.model_fields:
        assert f"`unscored.{name}`" in section("Keys")


def test_the_runbook_has_a_cause_for_every_reason_that_counts_as_a_failure() -> None:
    causes = " ".join(load_runbooks()["unscored"]["causes"])
    named = re.findall(r"`([a-z_]+\*?)`", causes)
    for reason in FAILURE_REASONS:
        assert any(fnmatch(reason, name) for name in named), reason


def test_every_kind_of_incident_has_a_runbook_but_a_rule_of_the_user() -> None:
    by_kind = {kind: incident_runbook(kind) for kind in get_args(IncidentKind)}
    assert [kind for kind, link in by_kind.items() if link.endswith("README.md")] == ["rule"]
    assert by_kind["wrong_passages"] == "docs/runbooks/retrieval.md"


def test_what_a_tier_does_not_answer_in_time_on_kafka_is_a_failure_with_its_name() -> None:
    late = Score("grounding", "mini", ScoreState.UNSCORED, reason="timeout")
    assert failure_reason(late) == "timeout"


def test_every_reason_that_counts_as_a_failure_is_told() -> None:
    assert (
        set(re.findall(r"`([a-z_]+)`", section("Results that failed")))
        >= FAILURE_REASONS | TRACE_REASONS
    )


def test_defaults_of_keys_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", section("Keys"), re.M))
    for name, field in AlertRule.model_fields.items():
        notified = rows.pop(field.alias or name, None)
        if notified is not None:
            expected = 900.0 if name == "no_data_for" else field.default
            value = 900.0 if notified == "15m" else yaml.safe_load(notified)
            if isinstance(expected, tuple):
                expected = list(expected)
            assert value == expected, name
    assert rows == {}


def test_every_template_field_is_told() -> None:
    notified = set(re.findall(r"`\{([a-z_]+)\}`", section("Templates")))
    assert notified == set(TEMPLATE_FIELDS)


def test_every_profile_is_told() -> None:
    assert first_cells("Profiles") == list(RULE_PROFILES)


RULES = PAGE[: PAGE.index("\n## Objectives and error budgets")]


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", RULES, re.S))
def test_examples_are_valid_rules(text: str) -> None:
    assert parse_rules([*default_documents(), yaml.safe_load(text)])


def test_the_webhook_example_has_the_fields_that_are_sent() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", section("Webhook"), re.S)
    body = json.loads(text)
    assert set(body["incident"]) == {field.name for field in fields(Incident)}
    signals = {field.name for field in fields(Alert)}
    assert all(set(one) <= signals for one in body["incident"]["signals"])
    for kind in get_args(IncidentKind):
        assert f"`{kind}`" in section("Webhook")
