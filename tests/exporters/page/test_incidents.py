"""Incidents on the page: a line each, and a page with the signals as evidence."""

from __future__ import annotations

import re

from ragmeter.alerts.alert import Alert
from ragmeter.parts.views import Incident
from ragmeter_exporters.page.incidents import incident_lines, incident_view
from ragmeter_exporters.page.rendering import fleet_page, incident_page, service_page
from ragmeter_exporters.page.services import fleet_view, service_view

from tests.exporters.alerts import absent, drifted, make, slow, unscored
from tests.exporters.fakes import NOW, FakeAgent, as_agent_view, everything, incident
from tests.exporters.incidents import opened, over, refused


def text_of(html: str) -> str:
    flat = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    return flat.replace("\u202f", " ")


def page(found: Incident, agent: FakeAgent | None = None) -> str:
    agent = agent or everything()
    agent.incident_list = [found]
    view = incident_view(as_agent_view(agent), found.service, found.id)
    assert view is not None
    return incident_page(view)


def signal(alert: Alert) -> str:
    return text_of(page(opened(signals=(alert,))))


def test_the_page_says_what_is_wrong_since_when_where_and_what_to_do() -> None:
    html = page(refused())
    text = text_of(html)
    assert "▲ Warning bot : prompt v13 refuses 37 % of questions" in text
    assert "Answered 95 % -&gt; 63 % (55 to 71), since 00:14 UTC, with prompt v13." in text
    assert "estimated, between 00:13 UTC and 00:15 UTC; told 2 min later" in text
    assert "Where tenant=globex" in text
    assert "Changed prompt_version v13 at 00:14 UTC" in text
    assert "Do See what the provider says. Runbook" in text
    assert "It ends when errors are below 1 %." in text
    assert "Incident fedcba9876543210" in text
    assert 'href="/trace/bot/trace-3"' in html
    assert 'href="https://wiki.example/errors.md"' in html


def test_what_has_a_place_of_its_own_is_no_detail_too() -> None:
    notified = opened(
        runbook="", detail=("Changed: nothing.", 'Worst question, 2x: "Why?"', "Effect.")
    )
    html = page(notified)
    assert "Effect." in html
    assert "Changed: nothing." not in html
    assert "Why?&#34;" not in html
    assert 'href="/runbooks/errors.md"' in html


def test_worst_questions_are_counted_and_requests_are_shown_by_what_was_asked() -> None:
    text = text_of(page(opened(worst=("t-1", "gone"))))
    assert "Where is it? 2×" in text
    assert "How do I reset it?" in text
    assert "gone" in text


def test_one_that_is_over_says_so_and_how_long_it_lasted() -> None:
    html = page(over())
    assert 'class="story over"' in html
    assert "✓ Over bot : requests work again" in text_of(html)
    assert "00:14 UTC to 01:06 UTC, for 52 min" in text_of(html)


def test_a_signal_says_from_what_to_what_and_beyond_which_limit() -> None:
    text = signal(make(baseline=0.004, top_segment="model=m-2", fingerprint="ab12"))
    assert "0.4 % → 20.0 % (15.0–26.0 %) &gt; 5.0 % in 5m (95 % sure)" in text
    assert "based on 240 answers, worth 232 · most in model=m-2 · instrument ab12" in text
    assert "most in" not in signal(make(segment="model=m", top_segment="model=m"))
    text = signal(unscored())
    assert "1.0 % → 33.0 % (27.0–40.0 %) &gt; 25.0 % in 1h" in text
    assert "judge timeout 60, unparsable 3" in text
    assert "2.31 s → 41.0 s (35.0–52.0 s) &gt; 30.0 s in 5m" in signal(slow())
    assert "40 → 0 in 1h" in signal(absent())
    assert "no traffic now: last known value" in signal(make(no_data=True))


def test_a_signal_of_drift_says_since_when() -> None:
    text = signal(drifted())
    assert "0.80 → 0.60 (0.55–0.65)" in text
    assert "between 00:10 UTC and 00:12 UTC" in text
    bare = drifted()
    bare.drift = {"kind": "mean"}
    assert "0.80 → 0.60" in signal(bare)


def test_everything_from_outside_is_escaped_and_bounded() -> None:
    bad = "<script>\u202e" + "x" * 5000
    html = page(
        opened(
            title=bad,
            summary=bad,
            detail=(bad,),
            segment=bad,
            worst=(bad,),
            worst_questions=((bad, 2),),
            signals=(unscored(top_segment=bad, fingerprint=bad, unscored={bad: 3}),),
        )
    )
    assert "<script>" not in html
    assert "\u202e" not in html
    assert "x" * 700 not in re.sub(r'href="[^"]*"', "", html)


def test_a_line_leads_to_the_incident_its_worst_requests_and_what_to_do() -> None:
    agent = everything()
    agent.incident_list = [incident(), incident(id="f" * 16, state="over", ended_at=NOW)]
    view = service_view(as_agent_view(agent), "bot")
    assert view is not None
    html = service_page(view)
    assert html.count('<li class="incident') == 1
    assert 'href="/incident/bot/0a1b2c3d4e5f6071"' in html
    assert "Grounded 84 % -&gt; 42 % (38 to 46), since 11:45 UTC." in html
    assert 'href="/trace/bot/t-1"' in html
    assert "Recently over (1)" in html
    calm = fleet_page(fleet_view(as_agent_view(everything())))
    assert '<span class="hidden"> page</span>' in calm


def test_of_two_states_a_line_names_the_one_that_is_not_open() -> None:
    first, second = incident_lines([opened(), refused(state="not measured")], 1060.0)
    assert (first.mark, first.severity, first.words) == ("■", "critical", "page")
    assert (second.mark, second.severity, second.words) == ("▲", "warning", "not measured")
    assert first.title == "20 % of requests fail"
    assert first.when == "since 00:14 UTC (3 min)"
    (line,) = incident_lines([opened(title="x" * 5000)], None)
    assert len(line.title) < 170
    assert line.when == "since 00:14 UTC"


def test_an_incident_that_is_not_held_has_no_page() -> None:
    agent = everything()
    assert incident_view(as_agent_view(agent), "bot", "0" * 16) is None
    assert incident_view(as_agent_view(agent), "other", agent.incident_list[0].id) is None
