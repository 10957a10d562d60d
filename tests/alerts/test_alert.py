"""Alert texts: fixed fields only, hostile values harmless, always bounded."""

from __future__ import annotations

import pytest
from ragmeter.alerts.alert import (
    TEMPLATE_FIELDS,
    Alert,
    check_template,
    clean_text,
    fill_template,
    format_number,
    render_summary,
    template_values,
)
from ragmeter.parts.incidents.engine import AlertEngine

from tests.parts.incidents.fakes import FakeWindows, around, rule
from tests.tables import each_row


def fired(service: str = "bot", **changes: object) -> Alert:
    engine = AlertEngine([rule(**changes)])
    windows = FakeWindows()
    windows.estimates[service, "", "error", "builtin"] = around(0.2)
    (alert,) = engine.evaluate(windows, 0.0)
    return alert


def test_the_sentence_says_value_interval_samples_and_rule() -> None:
    assert fired().summary == (
        "bot: error over 5m is 0.2 (95 % interval 0.18 to 0.22, 100 samples); rule: lower > 0.05"
    )


def test_every_field_can_stand_in_a_template() -> None:
    template = " ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)
    assert check_template(template) == template
    assert set(template_values(fired())) == set(TEMPLATE_FIELDS)


def test_a_template_is_filled_and_doubled_braces_are_text() -> None:
    alert = fired(summary="{{{service}}} {metric} {lower} {op} {threshold}")
    assert alert.summary == "{bot} error 0.18 > 0.05"


def test_annotations_are_templates_too() -> None:
    assert fired(annotations={"note": "see {service}"}).annotations == {"note": "see bot"}


def test_values_are_not_templates() -> None:
    alert = fired("{threshold}{service.__class__}", summary="<{service}>")
    assert alert.summary == "<{threshold}{service.__class__}>"


@each_row("text", ["{", "}", "{0}", "{}", "{a.b}", "{a[0]}", "{value!r}", "{value:9}", "{no}"])
def test_anything_but_a_plain_known_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|unknown field"):
        check_template(text)


def test_controls_and_direction_marks_become_spaces() -> None:
    assert clean_text("a\nb\x1b[31m\u202ec\u2028d\ud800e\x7f") == "a b [31m c d e "
    assert clean_text("naïve 日本 🙂") == "naïve 日本 🙂"


def test_texts_are_bounded() -> None:
    assert len(clean_text("x" * 10_000)) == 200
    assert len(fired("s" * 10_000, summary="{service} " * 90).summary) <= 1000
    assert len(fill_template("{a}" * 300, {"a": "b" * 200})) == 1000


@each_row(
    ("value", "text"), [(None, "-"), (0.0, "0"), (0.12345, "0.123"), (1234.5, "1234"), (-2.0, "-2")]
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_a_resolved_text_says_so() -> None:
    alert = fired()
    alert.state, alert.reason = "resolved", "because"
    assert render_summary(alert).startswith("Resolved: bot")
    assert render_summary(alert).endswith("(because)")


def test_a_sentence_says_used_facts_and_an_annotation_names_the_metric() -> None:
    alert = fired(summary="{metric} is low", annotations={"metric": "{metric}"})
    alert.metric = "groundedness"
    assert render_summary(alert, "{metric} is low") == "used facts is low"
    assert template_values(alert)["metric"] == "groundedness"
