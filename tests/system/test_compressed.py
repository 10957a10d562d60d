"""Nothing but durations changes in the rules of a story that is played faster."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.system.compressed import BY_THE_CLOCK, compressed, faster

RULES = Path(__file__).parents[2] / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"
DURATION = re.compile(r"\b\d+(?:ms|[smhdw])\b")


def test_durations_are_divided() -> None:
    assert faster("5m", 60) == "5000ms"
    assert faster("30s", 180) == "167ms"
    file = """
    groups:
    - name: g
      interval: 30s
      rules:
      - {record: "a:rate5m", expr: "rate(a_total[5m])"}
      - alert: A
        expr: (a unless last_over_time(a{window="5m"}[5m] offset 15m)) > 0.05
        for: 120s
        keep_firing_for: 1h
        labels: {window: 5m}
    """
    (group,) = yaml.safe_load(compressed(file, 60))["groups"]
    record, alert = group["rules"]
    assert group["interval"] == "500ms"
    assert record == {"record": "a:rate5m", "expr": "rate(a_total[5000ms])"}
    assert alert["expr"] == (
        '(a unless last_over_time(a{window="5m"}[5000ms] offset 15000ms)) > 0.05'
    )
    assert (alert["for"], alert["keep_firing_for"]) == ("2000ms", "60000ms")
    assert alert["labels"] == {"window": "5m"}


def test_of_the_real_file_nothing_else_changes() -> None:
    text = RULES.read_text("utf-8")
    before, after = yaml.safe_load(text), yaml.safe_load(compressed(text, 60))
    ranges = 0
    left = list(BY_THE_CLOCK)
    for old, new in zip(before["groups"], after["groups"], strict=True):
        assert old["name"] == new["name"]
        for one, other in zip(old["rules"], new["rules"], strict=True):
            assert {**one, "expr": "", "for": "", "keep_firing_for": ""} == {
                **other,
                "expr": "",
                "for": "",
                "keep_firing_for": "",
            } | dict.fromkeys(("for", "keep_firing_for"), "")
            assert set(one) == set(other)
            if one.get("alert") in BY_THE_CLOCK:
                left.remove(one["alert"])
                assert one == other
                continue
            plain = DURATION.sub("", one["expr"])
            assert plain == DURATION.sub("", other["expr"])
            ranges += len(re.findall(r"\[\d+ms\]", other["expr"]))
            assert not re.search(r"\[\d+[smhdw]\]", other["expr"])
    assert ranges > 40  # parts bring some
    assert left == []
