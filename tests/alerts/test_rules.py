"""The rule format: what is taken, and that every mistake names rule, key, value and the allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ragmeter.alerts.rules import RULE_PROFILES, AlertRule, RuleError, load_rules, parse_rules
from ragmeter.core.score import BUILTIN_SCORER, REFERENCE_SCORER
from ragmeter.metrics.registry import metric_specs

from tests.tables import each_row

GOOD: dict[str, Any] = {
    "name": "R",
    "severity": "warning",
    "metric": "error",
    "op": ">",
    "threshold": 0.05,
    "window": "5m",
}


def parse(changes: dict[str, Any], **context: Any) -> list[AlertRule]:
    entry = {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}
    return parse_rules([{"rules": [entry]}], **context)


def test_durations_become_seconds_and_defaults_hold() -> None:
    (rule,) = parse({"for": "1m30s", "keep_firing_for": "1h"})
    assert (rule.for_, rule.keep_firing_for, rule.no_data_for) == (90.0, 3600.0, 900.0)
    assert (rule.scorer, rule.statistic, rule.services) == ("builtin", "value", ("*",))


@pytest.mark.parametrize(("profile", "threshold"), [("sensitive", 1), ("quiet", 3)])
def test_the_profile_chooses_the_threshold(profile: str, threshold: float) -> None:
    levels = {"sensitive": 1, "balanced": 2, "quiet": 3}
    (rule,) = parse({"threshold": levels}, profile=profile)
    assert rule.threshold == threshold


MISTAKES: list[tuple[dict[str, Any], list[str]]] = [
    ({"severity": "page"}, ["'R'", "severity", "'page'", "'critical' or 'warning'"]),
    ({"severity": ...}, ["severity", "missing"]),
    ({"op": "=>"}, ["op", "'=>'", "'>='"]),
    ({"statistic": "mean"}, ["statistic", "'mean'", "'value', 'lower' or 'upper'"]),
    ({"threshold": "5%"}, ["threshold", "'5%'", "finite number"]),
    ({"threshold": True}, ["threshold", "True"]),
    ({"threshold": float("nan")}, ["threshold", "nan"]),
    ({"threshold": {"balanced": 1}}, ["threshold", "sensitive, balanced, quiet"]),
    ({"window": "5"}, ["window", "'5'", "5m"]),
    ({"window": 300}, ["window", "300"]),
    ({"for": "2 minutes"}, ["for", "'2 minutes'", "30s"]),
    ({"for": 5}, ["for", "5", "30s"]),
    ({"keep_firing_for": -1}, ["keep_firing_for", "-1"]),
    ({"min_samples": -1}, ["min_samples", "-1"]),
    ({"services": []}, ["services"]),
    ({"services": "bot"}, ["services", "'bot'"]),
    ({"fro": "5m"}, ["'R'", "fro", "not known", "for", "window"]),
    ({"metric": ...}, ["exactly one of metric, latency, absence, unscored", "none"]),
    ({"absence": True}, ["exactly one", "metric and absence"]),
    ({"metric": ..., "absence": True}, ["absence rule takes no op, threshold"]),
    ({"metric": ..., "latency": {"quantile": 0.9}}, ["latency.quantile", "0.9", "0.95"]),
    ({"metric": ..., "latency": {"stge": "x"}}, ["latency.stge", "quantile, stage"]),
    ({"metric": ..., "latency": {}, "scorer": "x"}, ["latency rule takes no scorer"]),
    ({"threshold": ...}, ["missing threshold"]),
    ({"labels": {"a-b": "x"}}, ["labels", "'a-b'"]),
    ({"labels": {"__name__": "x"}}, ["labels", "'__name__'"]),
    ({"labels": {"service": "x"}}, ["labels", "'service'", "itself"]),
    ({"summary": "{0}"}, ["summary", "brace"]),
    ({"summary": "{service.__class__}"}, ["summary", "brace"]),
    ({"summary": "{password}"}, ["summary", "{password}", "service"]),
    ({"annotations": {"note": "{nope}"}}, ["annotations", "{nope}"]),
    ({"runbook": "javascript:alert(1)"}, ["runbook", "https://"]),
    ({"name": "a b"}, ["'a b'", "name"]),
    ({"burn": {"short": "5m", "factor": 14.4}}, ["burn", "not known"]),
    ({"labels": {"slo": "x"}}, ["labels", "'slo'", "itself"]),
    (
        {"relative_to": "24h", "statistic": "value"},
        ["relative_to needs a metric", "lower or upper"],
    ),
    ({"relative_to": "24h", "metric": ..., "latency": {}}, ["relative_to needs a metric"]),
    ({"relative_to": "5m", "statistic": "lower"}, ["relative_to '5m'", "longer than window"]),
    ({"relative_to": 24, "statistic": "lower"}, ["relative_to", "24", "5m"]),
]


@each_row(("changes", "words"), MISTAKES, ids=str)
def test_a_mistake_names_itself(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RuleError) as caught:
        parse(changes)
    for word in words:
        assert word in str(caught.value)


def test_all_mistakes_of_a_rule_are_told_at_once() -> None:
    with pytest.raises(RuleError) as caught:
        parse({"severity": "page", "op": "=>"})
    assert len(str(caught.value).splitlines()) == 2


@each_row(
    ("document", "words"),
    [
        ([], "one key, `rules`"),
        ({"groups": []}, "one key, `rules`"),
        ({"rules": {"a": 1}}, "list of rules"),
        ({"rules": [{"severity": "warning"}]}, "rule number 1: key name"),
        ({"rules": [GOOD, GOOD]}, "two rules of this name"),
    ],
)
def test_a_file_of_another_shape_is_refused(document: object, words: str) -> None:
    with pytest.raises(RuleError, match=words):
        parse_rules([document])


def test_names_that_do_not_exist_here_are_refused() -> None:
    known: dict[str, Any] = {"metrics": metric_specs(), "segments": ["model"]}
    assert parse({"segment": "model"}, **known)
    for changes, words in [
        ({"metric": "eror"}, "key metric: 'eror' is not known; allowed: .*error"),
        ({"scorer": "gpt"}, "key scorer: 'gpt' is not known; allowed: builtin"),
        ({"segment": "tenant"}, "key segment: 'tenant' is not known; allowed: model"),
    ]:
        with pytest.raises(RuleError, match=words):
            parse(changes, **known)
    assert parse({"metric": "eror", "enabled": False}, **known) == []


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(RuleError, match="'strict' is not known; allowed: sensitive"):
        parse({}, profile="strict")


def test_a_users_file_changes_adds_and_switches_off(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules:\n"
        "  - {name: RagFaithfulnessLow, threshold: 0.2}\n"
        "  - {name: RagUnscoredHigh, enabled: false}\n"
        "  - {name: Mine, severity: warning, absence: true, window: 1h}\n"
    )
    default = {rule.name: rule for rule in load_rules()}
    rules = {rule.name: rule for rule in load_rules(path)}
    assert set(rules) == (set(default) - {"RagUnscoredHigh"}) | {"Mine"}
    assert rules["RagFaithfulnessLow"].threshold == 0.2
    assert rules["RagFaithfulnessLow"].for_ == default["RagFaithfulnessLow"].for_


def test_without_the_defaults_a_file_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("rules: [{name: Mine, severity: warning, absence: true, window: 1h}]\n")
    assert [rule.name for rule in load_rules(path, defaults=False)] == ["Mine"]


def test_switching_off_a_rule_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(RuleError, match="'RagUnscordHigh': key severity: is missing"):
        parse_rules([{"rules": [{"name": "RagUnscordHigh", "enabled": False}]}])


def test_a_rule_may_be_turned_to_watch_something_else() -> None:
    changed = {"name": "R", "latency": {"stage": "total"}, "op": ">", "threshold": 9}
    (rule,) = parse_rules([{"rules": [GOOD]}, {"rules": [changed]}])
    assert rule.metric is None
    assert rule.watched == ("latency", "")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("# nothing yet\n")
    assert load_rules(path) == load_rules()


@pytest.mark.parametrize(
    "text", ["rules: [", "\x00", "rules: 2025-13-45", f"rules: {'9' * 5000}", "[" * 1000]
)
def test_a_file_that_is_no_yaml_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(RuleError, match=r"rules\.yaml"):
        load_rules(path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(RuleError, match="nowhere"):
        load_rules("nowhere")


# -- the defaults


@pytest.mark.parametrize("profile", RULE_PROFILES)
def test_the_defaults_are_valid_in_every_profile(profile: str) -> None:
    rules = load_rules(profile=profile, metrics=metric_specs())
    watched = {rule.watched[0] for rule in rules if rule.unscored is None}
    assert {"faithfulness", "groundedness", "context_relevancy", "judge_disagreement"} <= watched


def test_default_profiles_are_ordered_from_sensitive_to_quiet() -> None:
    by_profile = [load_rules(profile=profile) for profile in RULE_PROFILES]
    for sensitive, balanced, quiet in zip(*by_profile, strict=True):
        if sensitive.op == ">":
            assert sensitive.threshold < balanced.threshold < quiet.threshold
        else:
            assert sensitive.threshold > balanced.threshold > quiet.threshold


def test_defaults_test_the_bound_that_gives_the_benefit_of_the_doubt() -> None:
    for rule in load_rules():
        of_canaries = (
            rule.scorer == REFERENCE_SCORER
        )  # a suite has few questions; their interval says so
        assert rule.min_samples >= (5 if of_canaries else 20)
        assert rule.keep_firing_for > 0
        if rule.metric in ("judge_probe_change", "judge_probe_agreement"):
            continue  # the whole frozen set, judged at one moment: no sample
        assert rule.statistic == ("lower" if rule.op == ">" else "upper")
        assert rule.for_ > 0
        if rule.metric is not None:
            bad = "lower" if rule.op == ">" else "higher"
            assert metric_specs()[rule.metric].good == bad


def test_no_default_holds_what_drift_compares_with_its_usual_against_a_number() -> None:
    for rule in load_rules():
        assert rule.latency is None
        assert rule.metric is None or rule.scorer != BUILTIN_SCORER


def test_silence_of_probes_is_no_absence_unless_asked_for() -> None:
    entry = {"name": "Absent", "severity": "warning", "absence": True, "window": "1h"}
    (every,) = parse_rules([{"rules": [entry]}])
    assert every.covers("bot")
    assert not every.covers("_judge")
    (asked,) = parse_rules([{"rules": [{**entry, "services": ["_judge"]}]}])
    assert asked.covers("_judge")
    for rule in load_rules():
        assert rule.absence or rule.covers("_judge")


UNSCORED = {
    "name": "Failed",
    "severity": "warning",
    "unscored": {"metric": "grounding", "scorer": "hhem*"},
    "op": ">",
    "threshold": 0.1,
    "window": "1h",
}


def test_an_unscored_rule_matches_by_globs_cutoffs_included() -> None:
    (rule,) = parse_rules([{"rules": [UNSCORED]}], metrics=metric_specs())
    assert rule.unscored is not None
    assert rule.unscored.matches("grounding", "hhem")
    assert not rule.unscored.matches("grounding", "builtin")
    (rule,) = parse_rules([{"rules": [{**UNSCORED, "unscored": {"metric": "precision_at_k"}}]}])
    assert rule.unscored is not None
    assert rule.unscored.matches("precision_at_k:5", "umbrela")


@each_row(
    ("changes", "notified"),
    [
        ({"scorer": "judge"}, "an unscored rule takes no scorer beside it"),
        ({"segment": "model"}, "an unscored rule takes no segment beside it"),
        ({"metric": "error"}, "found metric and unscored"),
        ({"unscored": {"scorers": "x"}}, "key unscored.scorers: is not known"),
        ({"unscored": {"metric": "grounding", "scorer": "x"}}, "no metric 'grounding' has a"),
    ],
)
def test_a_mistake_in_an_unscored_rule_names_itself(
    changes: dict[str, object], notified: str
) -> None:
    with pytest.raises(RuleError, match=notified):
        parse_rules([{"rules": [{**UNSCORED, **changes}]}], metrics=metric_specs())


@pytest.mark.parametrize("key", ["op", "threshold"])
def test_an_unscored_rule_needs_a_limit(key: str) -> None:
    entry = {name: value for name, value in UNSCORED.items() if name != key}
    with pytest.raises(RuleError, match=f"missing {key}"):
        parse_rules([{"rules": [entry]}])


def test_no_summary_says_that_1_of_the_results_failed_where_all_did() -> None:
    assert [rule.name for rule in load_rules() if "{value} of" in rule.summary] == []


def test_a_missing_rules_file_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "missing.yaml"
    with pytest.raises(RuleError) as caught:
        load_rules(file)
    assert str(caught.value) == f"rules file {file}: No such file or directory"
