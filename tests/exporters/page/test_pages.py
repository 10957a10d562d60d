from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from ragmeter import __version__
from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.parts.labels.desk import LabelView
from ragmeter.parts.questions.catalogue import QUESTIONS
from ragmeter.parts.views import Change, SegmentAnswer
from ragmeter.windows.worst import RankedTrace
from ragmeter_exporters.page.rendering import (
    DOCS_URL,
    details_page,
    error_page,
    fleet_page,
    render_part_page,
    service_page,
    trace_page,
)
from ragmeter_exporters.page.services import fleet_view, service_view
from ragmeter_exporters.page.traces import trace_parts, trace_view
from ragmeter_exporters.page.views import PageOptions, details_view

from tests.exporters.asked import answer, asked, level
from tests.exporters.fakes import (
    NOW,
    FakeAgent,
    alert,
    as_agent_view,
    estimate,
    everything,
    incident,
    results,
    trace,
)
from tests.tables import each_row

LIVE = PageOptions(clock=lambda: NOW + 4.0, started=NOW - 7200.0)

HOSTILE = (
    '</p><script>alert(1)</script><img src=x onerror="alert(2)">\' "quoted" \u202eevil\u2066 \x00'
)


def test_services_without_series_are_named_and_escaped() -> None:
    agent = everything()
    agent.unnamed += [HOSTILE, *(f"service-{number}" for number in range(30))]
    html = fleet_page(fleet_view(as_agent_view(agent)))
    page = Page(html)
    assert "31 names beyond" in page.text
    assert "service-18" in page.text
    assert "service-19" not in page.text
    assert "<script" not in html
    assert "\u202e" not in html


class Page(HTMLParser):
    """Checks that tags nest, and keeps tags, ids and text."""

    VOID = frozenset({"meta", "br", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.open else ""

    def links(self) -> list[str]:
        return [str(attrs["href"]) for tag, attrs in self.tags if tag == "a"]


def fleet(agent: FakeAgent, options: PageOptions = LIVE) -> Page:
    return Page(fleet_page(fleet_view(as_agent_view(agent), options)))


def front(agent: FakeAgent, service: str = "bot", **chosen: str) -> Page:
    view = service_view(as_agent_view(agent), service, LIVE, **chosen)
    assert view is not None
    return Page(service_page(view))


def details(agent: FakeAgent, service: str = "bot") -> Page:
    view = details_view(as_agent_view(agent), service, LIVE)
    assert view is not None
    return Page(details_page(view))


def traced(agent: FakeAgent, service: str = "bot", trace_id: str = "t-1") -> Page:
    view = trace_view(as_agent_view(agent), service, trace_id, LIVE)
    assert view is not None
    return Page(trace_page(view))


def test_the_details_have_every_number_with_its_interval() -> None:
    text = details(everything()).text.replace("\u202f", " ")
    assert "80.0 %75.0–85.0 %" in text  # answered
    assert "2.50 s2.20–3.00 s" in text  # p95
    assert "40 scored, 3 does not apply, 1 failed to score" in text
    assert "model=m-1" in text
    assert "95 % interval" in text


def test_too_little_evidence_is_said_and_not_zero() -> None:
    assert "—not enough answers yet (3 of 5)" in details(everything()).text


def test_what_was_guessed_from_spans_is_said() -> None:
    assert "Guessed from spans: query 7 since the start" in details(everything()).text
    assert "Guessed" not in details(plain()).text


def plain() -> FakeAgent:
    agent = FakeAgent()
    agent.fake.table[("bot", "", "grounding", "builtin", "1h")] = estimate()
    return agent


def test_metrics_without_any_score_share_one_line() -> None:
    agent = FakeAgent()
    found = estimate(samples=0)
    agent.fake.table[("bot", "", "grounding", "builtin", "1h")] = estimate()
    for window in ("5m", "1h", "24h"):
        agent.fake.table[("bot", "", "relevance", "builtin", window)] = found
    page = details(agent)
    assert "Without a score in 24h: relevance (3 does not apply, 1 failed to score)" in page.text


def test_what_canaries_say_stands_apart_from_the_traffic() -> None:
    agent = FakeAgent()
    for metric, scorer in (
        ("grounding", "builtin"),
        ("faithfulness", "judge"),
        ("faithfulness", "canary/judge"),
        ("precision_at_k:5", "umbrela"),
        ("precision_at_k:5", "reference"),
        ("fact_checks", "reference"),
        ("helpfulness", "human"),
    ):
        agent.fake.table[("bot", "", metric, scorer, "1h")] = estimate()
    head, table = details(agent).text.split("Requests in 1h", 1)
    assert "Canaries" not in head
    quality, rest = table.split("Labels")
    labels, canaries = rest.split("Canaries")
    assert quality.lstrip().startswith("Quality")
    for metric in ("precision at 5reference", "faithfulnesscanary"):
        assert canaries.count(metric) == 1
    for metric in ("precision at 5umbrela", "faithfulnessjudge"):
        assert quality.count(metric) == 1
    assert "helpfulness" in labels
    assert "fact checks" in canaries
    assert "canary/judge" in canaries
    assert "canary" not in quality + labels
    assert "grounding" in quality


def test_open_incidents_come_first_in_the_details() -> None:
    agent = everything()
    agent.incident_list = [
        incident(),
        incident(id="2" * 16, severity="warning", title="bot: slow answers"),
        incident(id="3" * 16, state="over", title="bot: it is over", ended_at=NOW),
    ]
    page = details(agent)
    text = page.text.replace("\u202f", " ")
    assert text.index("answers are less grounded") < text.index("slow answers")
    assert text.index("slow answers") < text.index("Recently over (1)")
    assert text.index("it is over") < text.index("Every measure")
    assert "/incident/bot/" + "2" * 16 in page.links()
    assert "/trace/bot/t-1" in page.links()


def test_nothing_yet() -> None:
    agent = FakeAgent()
    agent.fake.now = None
    text = fleet(agent).text
    assert "0 services" in text
    assert "No request has come yet." in text


def live(seconds: float, **health: Any) -> Page:
    """The page of all services of an agent without alerts, so long after its newest request."""
    agent = everything()
    agent.incident_list.clear()
    agent.state = AgentHealth(**health)
    return fleet(agent, PageOptions(clock=lambda: NOW + seconds, started=NOW - 7200.0))


def test_calm_is_told_from_silence_and_from_standing_still() -> None:
    calm = live(4.0, processing_lag_seconds=0.1).text.replace("\u202f", " ")
    assert "flows, last request 4 s ago" in calm
    assert "No incident." in calm
    silent = live(1200.0, processing_lag_seconds=0.0).text.replace("\u202f", " ")
    assert "no request for 20 min" in silent
    assert "No incident is open, but no request has come for 20 min." in silent
    still = live(86_400.0 * 40).text.replace("\u202f", " ")
    assert "stands still for 40 d" in still
    assert "The data stands still" in still
    assert "No incident was open when the data stood still." in still


def test_version_uptime_and_help_are_on_every_page() -> None:
    page = live(60.0)
    assert f"ragmeter {__version__}, up 2\u202fh 1\u202fmin" in page.text
    assert "/runbooks/README.md" in page.links()


def test_the_share_left_out_because_of_language_is_said() -> None:
    text = details(everything()).text.replace("\u202f", " ")
    assert "Left out because of language: 25.0 % of traces (10 of 40 since the start" in text


def test_fifty_services_are_a_small_page_with_the_troubled_first() -> None:
    agent = FakeAgent()
    names = [f"service-{number:02d}" for number in range(50)]
    for name in names:
        agent.fake.table[(name, "", "grounding", "builtin", "1h")] = estimate()
    questions = asked(*names)
    fine = [answer(one.name) for one in QUESTIONS]
    for name in names:
        questions.table[name] = fine
    questions.table["service-35"] = [answer("works", state="moved"), *fine[1:]]
    agent.asked = questions
    agent.incident_list = [
        incident(id=f"a{n}", service=f"service-{n:02d}", severity=severity, worst=(f"w{n}",))
        for n, severity in ((30, "warning"), (40, "page"), (20, "page"))
    ]
    html = fleet_page(fleet_view(as_agent_view(agent), LIVE))
    page = Page(html)
    assert "50 services 4 need a look" in page.text
    table = page.text.split("Status")[1]
    order = [table.index(f"service-{n}") for n in (20, 40, 30, 35, 10)]
    assert order == sorted(order)
    assert "■ 1 incident" in table
    assert "▲ works moved" in table
    assert table.count("OK") == 46
    links = [link for link in page.links() if link.startswith("/service/")]
    assert set(links) == {f"/service/{name}" for name in names}
    assert len(gzip.compress(html.encode())) < 30_000


def test_problems_are_in_plain_sight() -> None:
    page = fleet(FakeAgent(state=AgentHealth(problems=("disk full <b>",))))
    assert "not ready" in page.text
    assert "disk full <b>" in page.text


def test_worst_traces_lead_to_their_pages() -> None:
    page = details(everything())
    assert "0.31" in page.text
    assert "How do I reset it?" in page.text
    assert "Hold the button [1]." in page.text
    assert "Hold the button for ten seconds." in page.text
    assert "/trace/bot/t-1" in page.links()  # of the alert
    assert "/trace/bot/t-1?metric=grounding&scorer=builtin" in page.links()


def test_a_worst_trace_that_is_no_longer_kept_has_no_link() -> None:
    agent = everything()
    agent.documents.clear()
    agent.incident_list.clear()
    page = details(agent)
    assert "Its text is not kept any more." in page.text
    assert "/trace/bot/t-1" not in page.links()


def test_perfect_traces_are_not_worst() -> None:
    agent = everything()
    agent.fake.bad = {
        ("bot", "error", "builtin"): [RankedTrace("fine", 0.0, NOW)],
        ("bot", "relevance", "builtin"): [RankedTrace("best", 3.0, NOW)],
    }
    agent.incident_list.clear()
    assert "Worst traces" not in details(agent).text


@pytest.mark.parametrize(("read", "drawn"), [(front, 8), (details, 10), (fleet, 1)])
def test_tables_and_charts_can_be_read_aloud(read: Callable[[FakeAgent], Page], drawn: int) -> None:
    page = read(everything())
    assert ("html", {"lang": "en"}) in page.tags
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")
    drawings = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert all(a.get("aria-hidden") or (a["role"] == "img" and a["aria-label"]) for a in drawings)
    assert len(drawings) >= drawn
    assert [tag for tag, _ in page.tags].count("h1") == 1
    assert not any("style" in attrs for _, attrs in page.tags)


def test_the_trace_page_shows_the_whole_case() -> None:
    text = traced(everything()).text.replace("\u202f", " ")
    for part in (
        "How do I reset it?",
        "Hold the button [1].",
        "Hold the button for ten seconds.",
        "score 0.83",
        "kb#1",
        "Hello",
        "2.41 s",
        "120 ms",
        "acme",
        "m-1",
        "0.31",
        "probability 0.5",
        "unsupported: “ten”",
        "no text",
    ):
        assert part in text, part


@each_row(
    "document",
    [
        {},
        {"trace": None, "results": None},
        {"trace": {"passages": None, "answer": None}, "results": [{}]},
        {"trace": {"passages": ["x", {"id": 3}], "citations": "no", "timings": 3, "tags": []}},
        {"trace": {"citations": [{"start": -5, "end": 10**9, "passage_ids": [None]}, 4]}},
    ],
)
def test_a_trace_that_is_not_whole_still_has_a_page(document: dict[str, Any]) -> None:
    agent = FakeAgent(documents={("bot", "t"): document})
    assert "bot" in traced(agent, "bot", "t").text


def hostile() -> FakeAgent:
    agent = FakeAgent(segments=["model"])
    service, segment = f"svc{HOSTILE}", f"model={HOSTILE}"
    for key in ("", segment):
        for metric in ("grounding", "answered", "error"):
            agent.fake.table[(service, key, metric, HOSTILE, "1h")] = estimate()
        agent.fake.latency[(service, key, HOSTILE, "1h")] = []
    agent.fake.bad[(service, "grounding", HOSTILE)] = [RankedTrace(HOSTILE, 0.1, NOW)]
    long = HOSTILE + "x" * 100_000
    document = trace(
        trace_id=HOSTILE,
        query=long,
        answer=long,
        error=long,
        model=HOSTILE,
        passages=[{"id": HOSTILE, "text": long, "metadata": {HOSTILE: HOSTILE}}] * 200,
        history=[{"role": HOSTILE, "text": long}] * 200,
        tags={HOSTILE: long},
        citations=[{"start": 0, "end": 90, "passage_ids": [HOSTILE]}] * 200,
        timings={HOSTILE: 1.0},
    )
    scores = [{**item, "detail": {HOSTILE: long}, "reason": HOSTILE} for item in results()]
    agent.documents[(service, HOSTILE)] = {"trace": document, "results": scores}
    questions = asked(service)
    rows = list(questions.table[service])
    rows[3] = answer(
        "grounded", note=HOSTILE, source=HOSTILE, scores=(("grounding", HOSTILE),), state="bad"
    )
    rows[0] = answer("works")
    questions.table[service] = rows
    questions.segments = [SegmentAnswer(segment, "works", level(0.6), moved=True)] * 3
    questions.new = [Change(NOW - 7200, "model", long)]
    agent.asked = questions
    signal = alert(service=service, segment=segment, rule=HOSTILE, summary=long, worst=[HOSTILE])
    agent.incident_list = [
        incident(
            service=service,
            segment=segment,
            title=HOSTILE,
            summary=long,
            detail=(long, HOSTILE),
            worst=(HOSTILE,),
            worst_questions=((HOSTILE, 3),),
            signals=(signal,),
            runbook="/runbooks/errors.md",
        )
    ]
    return agent


def test_hostile_text_stays_text_and_is_bounded() -> None:
    agent = hostile()
    service = agent.fake.services()[0]
    for page in (
        fleet(agent),
        front(agent, service),
        details(agent, service),
        traced(agent, service, HOSTILE),
    ):
        names = {tag for tag, _ in page.tags}
        assert not names & {"script", "img", "iframe", "object"}
        assert not any(key.startswith("on") for _, attrs in page.tags for key in attrs)
        assert "⟦U+202E⟧" in page.text
        assert not set("\u202e\u2066\x00") & set(page.text)
        assert all(link.startswith(("/", "#", DOCS_URL)) for link in page.links())
        assert not any(link.startswith("//") for link in page.links())
        assert len(page.text) < 1_000_000


def test_words_that_nothing_supports_are_marked_with_the_nearest_evidence() -> None:
    agent = everything()
    answer = "It was built <b>in 1902</b> by Victoria."

    def span(start: Any, end: Any, text: str, evidence: Any = None) -> dict[str, Any]:
        return {"start": start, "end": end, "text": text, "evidence": evidence}

    at = answer.index("Victoria")
    spans = [
        span(at, at + 8, "Victoria", {"passage_id": "kb<2>", "text": 'Anne "built" <it>'}),
        span(0, 2, "It"),
        span(0, 6, "It was"),  # overlaps
        span(3, 6, "moved"),  # of another text
        *[span(start, 9, "x") for start in (-4, None, 10**9, "3")],
        "no span",
    ]
    document = agent.documents[("bot", "t-1")]
    document["trace"] = {**document["trace"], "answer": answer}
    document["results"][0] = {**document["results"][0], "detail": {"unsupported_spans": spans}}
    page = traced(agent)
    marks = [attrs["title"] for tag, attrs in page.tags if tag == "mark"]
    assert marks == [
        "Nothing in the passages supports this.",
        'Nothing supports this. Nearest, in kb<2>: Anne "built" <it>',
    ]
    assert answer in page.text


@pytest.mark.parametrize(
    ("start", "marked"),
    [
        ("It", ["1950", "25", "Anne in 1950"]),
        ("\u0130t", ["Anne in 1950"]),  # one letter that is two in lower case: no place is sure
    ],
)
def test_numbers_in_no_passage_are_marked_where_they_stand(start: str, marked: list[str]) -> None:
    agent = everything()
    answer = f"{start} cost **195** in 1950 [25], and 19501; 25 by Anne in 1950."
    at = answer.index("Anne")
    span = {"start": at, "end": at + 12, "text": "Anne in 1950", "evidence": None}
    document = agent.documents[("bot", "t-1")]
    document["trace"] = {**document["trace"], "answer": answer}
    details = [{"novel_numbers": ["1950", "25", 7]}, {"unsupported_spans": [span]}]
    document["results"] = [{**document["results"][0], "detail": detail} for detail in details]
    view = trace_view(as_agent_view(agent), "bot", "t-1", LIVE)
    assert view is not None
    assert re.findall("<mark tabindex[^>]*>([^<]*)</mark>", trace_page(view)) == marked
    label = render_part_page(
        "ragmeter.parts.labels:label.html",
        "Label",
        view.base,
        page=trace_parts(view, mark_numbers=False),
        view=LabelView("bot", "token", "t1"),
        agreement=(),
    )
    assert re.findall("<mark tabindex[^>]*>([^<]*)</mark>", label) == ["Anne in 1950"]


def test_errors_have_a_page() -> None:
    page = Page(error_page(404, "Not Found", "<b>gone</b>"))
    assert "404 Not Found" in page.text
    assert "<b>gone</b>" in page.text


def test_what_a_judge_scored_names_the_judge() -> None:
    agent = everything()
    agent.judges = [{"judge": "judge", "model": "m-1 <b>"}]
    labels = ("judge", "judge")
    agent.counters.inc("ragmeter_judge_verdicts_total", (labels, ("source", "kept")), 3)
    agent.fake.table["bot", "", "relevance", "umbrela", "1h"] = estimate(2.0)
    text = " ".join(details(agent).text.replace("\u00a0", " ").split())
    assert "umbrela by m-1 <b> · 0–3" in text
    assert "builtin by" not in text
    kept = agent.counters.get("ragmeter_judge_verdicts_total", (labels, ("source", "kept")))
    assert kept >= 3
    assert f"is m-1 <b>: {kept:.0f} verdicts since the start, {kept:.0f} of them from" in text
    agent.judges = []
    assert "The judge" not in details(agent).text
