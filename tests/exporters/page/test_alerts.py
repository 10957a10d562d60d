"""Cards of alerts."""

from __future__ import annotations

import re

from ragmeter.alerts.alert import Alert
from ragmeter_exporters.page.alerts import alerts_view, incident_lines
from ragmeter_exporters.page.rendering import render

from tests.exporters.alerts import absent, drifted, make, slow, unscored


def section(alerts: list[Alert], now: float) -> str:
    return render("alerts.html", alerts=alerts_view(alerts, now))


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


def test_drift_is_told_from_what_to_what_since_when_and_where() -> None:
    html = section([drifted()], 1060.0)
    assert "model=&lt;b&gt;" in html
    text = text_of(html)
    assert "0.8 → 0.6 (0.55 – 0.65)" in text
    assert "false alarm at most every 36 days" in text
    assert "changed 1970-01-01 00:11:40 UTC" in text
    assert "instrument ab12cd34ef56" in text
    older = text_of(section([drifted(drift={"since_at_least": True})], 1060.0))
    assert "changed 1970-01-01 00:11:40 UTC or earlier" in older


def test_a_share_names_its_edge_and_an_end_keeps_the_change() -> None:
    alert = drifted(state="resolved", resolved_at=1100.0, drift={"edge": 0.5}, top_segment="")
    text = text_of(section([alert], 1200.0))
    assert "(0.55 – 0.65) above 0.5" in text
    assert "Resolved 1970-01-01 00:18:20 UTC" in text
    assert "changed" in text
    assert "most in" not in text


def card(alert: Alert) -> str:
    return text_of(section([alert], 1060.0)).replace("\u202f", " ")


def test_a_threshold_shows_before_now_and_its_limit() -> None:
    text = card(make(baseline=0.004, top_segment="model=m-2", fingerprint="ab12"))
    assert "0.4 % → 20.0 % (15.0–26.0 %) &gt; 5.0 % in 5m (95 % sure)" in text
    assert "began 1970-01-01 00:14:40 UTC" in text
    assert "based on 240 answers, worth 232" in text
    assert "most in model=m-2 · instrument ab12" in text
    assert "most in" not in card(make(segment="model=m", top_segment="model=m"))


def test_failed_results_are_a_share_with_reasons() -> None:
    text = card(unscored())
    assert "1.0 % → 33.0 % (27.0–40.0 %) &gt; 25.0 % in 1h" in text
    assert "judge timeout 60, unparsable 3" in text


def test_latency_and_silence() -> None:
    assert "2.31 s → 41.0 s (35.0–52.0 s) &gt; 30.0 s in 5m" in card(slow())
    assert "40 → 0 in 1h" in card(absent())


def test_what_an_older_version_has_saved_is_shown_without_what_it_did_not_know() -> None:
    old = make().to_dict()
    for name in ("baseline", "top_segment", "top_segment_words", "fingerprint", "unscored"):
        del old[name]
    assert "20.0 %" in card(Alert.from_dict(old))
    drift = drifted(baseline=None)
    assert "0.6 (0.55" in card(drift)


def test_everything_from_outside_is_escaped_and_bounded() -> None:
    bad = "<script>\u202e" + "x" * 5000
    html = section(
        [
            unscored(top_segment=bad, top_segment_words=bad, fingerprint=bad,
                     unscored={bad: 3}, worst=[bad]),
            make(annotations={"note": bad}, summary=bad),
        ],
        1060.0,
    )  # fmt: skip
    assert "<script>" not in html
    assert "\u202e" not in html
    assert "x" * 700 not in re.sub(r'href="[^"]*"', "", html)


def causes(*alerts: Alert, state: str = "firing") -> list[list[str]]:
    found = alerts_view(alerts, 1060.0)[state]
    return [[card.alert.id for card in cause] for cause in found]


def test_alerts_of_one_cause_share_a_card_that_leads_with_the_announced_one() -> None:
    lead = make(id="lead", worst=["a", "b"])
    late = make(
        id="late", rule="RagTimeoutsHigh", metric="timeout", folded_under="lead", worst=["b", "c"]
    )
    drift = drifted(id="drift", folded_under="lead", worst=[])
    assert causes(drift, late, lead) == [["lead", "late", "drift"]]
    html = section([drift, late, lead], 1060.0)
    assert html.count("<article") == 1
    assert "1 cause, 3 alerts firing" in text_of(html)
    assert "also: timeout, grounding (2)" in text_of(html)
    assert [html.count(f"/trace/bot/{name}") for name in "abc"] == [1, 1, 1]


def test_a_warning_that_was_announced_before_is_of_the_cause_whose_traces_it_names() -> None:
    before = drifted(id="drift", fired_at=900.0, worst=["a"])
    critical = make(id="errors", worst=["a", "z"])
    other = slow(id="slow", worst=["q"])
    elsewhere = make(id="else", service="calm", worst=["a"])
    assert causes(before, critical, other, elsewhere) == [["errors", "drift"], ["slow"], ["else"]]


def test_the_service_with_the_worst_alert_comes_first() -> None:
    quiet = make(id="w", service="a", severity="warning", fired_at=2000.0)
    loud = [make(id="c", service="z"), make(id="d", service="z", severity="warning", worst=["y"])]
    assert causes(quiet, *loud) == [["c"], ["d"], ["w"]]


def test_a_critical_cause_comes_before_the_other_causes_of_its_service() -> None:
    warning = make(id="w", severity="warning", worst=["a"])
    folded = make(id="c", folded_under="resolved", worst=["z"])
    assert causes(warning, folded) == [["c"], ["w"]]


def test_each_card_leads_to_what_to_do() -> None:
    html = section([make(), make(id="own", service="b", runbook="https://x.example/r")], 1060.0)
    assert 'href="/runbooks/errors.md"' in html
    assert 'href="https://x.example/r"' in html


def test_many_alerts_are_bounded() -> None:
    many = [make(id=f"a{n}", worst=[f"t{n}"], service=f"s{n}") for n in range(80)]
    html = section([*many, *(make(id=f"f{n}", folded_under="x") for n in range(60))], 1060.0)
    assert html.count("<article") == 50
    assert "and 31 more causes" in html


def test_a_line_is_a_cause_with_what_to_look_at() -> None:
    lead = make(id="lead", worst=["a", "b"], since=880.0)
    late = make(id="late", metric="timeout", folded_under="lead", worst=["b", "c"])
    gone = make(id="gone", state="resolved", resolved_at=1050.0)
    (line,) = incident_lines([late, lead, gone], 1060.0)
    assert (line.mark, line.title) == ("■", "too many errors")
    assert line.since.replace("\u202f", " ") == "since 00:14 UTC (3 min)"
    assert (line.worst, line.also) == (["a", "b", "c"], "timeout")
    assert line.runbook == "/runbooks/errors.md"


def test_a_line_without_a_summary_has_the_name_of_its_rule_and_is_bounded() -> None:
    (line,) = incident_lines([make(summary="", severity="warning")], None)
    assert (line.mark, line.title) == ("▲", "RagErrorsHigh")
    (line,) = incident_lines([make(summary="x" * 5000)], 1060.0)
    assert len(line.title) < 170
