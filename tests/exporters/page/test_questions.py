"""The page of a service: eight questions with one number each, what changed, the worst, where."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from ragmeter.parts.questions.catalogue import QUESTIONS
from ragmeter.parts.views import Change, Movement, SegmentAnswer, SourceChange
from ragmeter.windows.worst import RankedTrace
from ragmeter_exporters.page.questions import (
    ROWS,
    QuestionsView,
    choose,
    compare_all,
    describe_change,
    difference_interval,
    group_by_query,
    read_questions,
    sort_segments,
    with_gaps,
)
from ragmeter_exporters.page.services import FleetRow

from tests.exporters.asked import AT, FakeQuestions, answer, asked, level
from tests.exporters.fakes import FakeAgent, as_agent_view, estimate, everything, trace
from tests.exporters.page.test_pages import Page, details, fleet, front, traced
from tests.tables import each_row

THIN = "\u202f"


def text_of(page: Page) -> str:
    return " ".join(page.text.replace(THIN, " ").split())


def tiles(page: Page) -> dict[str, dict[str, str | None]]:
    """The links of the tiles, by question."""
    found = [attrs for tag, attrs in page.tags if (attrs.get("class") or "").startswith("tile")]
    links = [attrs for attrs in found if "href" in attrs]
    names = [str(attrs["href"]).partition("question=")[2].partition("&")[0] for attrs in links]
    return dict(zip(names, links, strict=True))


def test_eight_tiles_have_a_number_its_interval_the_usual_and_the_goal() -> None:
    page = front(everything())
    text = text_of(page)
    assert list(tiles(page)) == [one.name for one in QUESTIONS]
    assert "works ■ bad 81 % 76 to 86 usual 100 % goal 99 %" in text
    assert "fast 2.5 s 2.34 to 2.66 usual 2.5 s no goal set" in text
    assert "cost $0.8 per 1,000 0.75 to 0.85 usual $0.8 no goal set" in text


def test_without_a_level_there_is_no_share_but_a_movement() -> None:
    text = text_of(front(everything()))
    assert "grounded ▲ moved not enough yet no level 1 h: −9 points against usual" in text
    large = text_of(front(everything(), question="grounded"))
    assert "Not enough yet for a level in this time. Against usual, 1 h: −9 points." in large
    assert "no level: it needs labels, a judge or more answers scored by the model" in large


def test_source_and_note_are_told_to_mouse_and_keyboard() -> None:
    page = front(everything())
    notified = str(tiles(page)["works"]["title"])
    assert notified == (
        "Requests answered without error, timeout or empty answer. Measured by: every request, of"
        " the last 1h; based on 143, worth 100 independent ones."
    )
    assert page.text.count(notified) == 1, "shown while the tile has the focus"


def test_the_worst_question_is_shown_large_or_the_one_that_was_asked_for() -> None:
    assert "Chart of works" in str(front(everything()).tags)
    assert "Chart of cost" in str(front(everything(), question="cost").tags)
    fine = [answer(one.name) for one in QUESTIONS]
    assert choose(fine).question == "grounded"
    assert choose([answer("works", state="moved"), answer("fast", state="bad")]).question == "fast"


def test_the_chart_has_a_goal_a_usual_and_marks_of_changes() -> None:
    page = front(everything())
    kinds = [attrs.get("class") for tag, attrs in page.tags if tag == "line"]
    assert (kinds.count("goal"), kinds.count("usual"), kinds.count("change")) == (1, 1, 2)
    assert "new: 12:13 UTC model m-2" in text_of(page)


def test_gaps_stay_gaps_and_levels_stand_in_the_middle_of_their_hour() -> None:
    own = level()
    points = with_gaps([(0.0, own), (3600.0, own), (14_400.0, own)], 86_400.0, 86_400)
    assert [(at, found is not None) for at, found in points] == [
        (0.0, False),
        (1800.0, True),
        (5400.0, True),
        (10_800.0, False),
        (16_200.0, True),
        (86_400.0, False),
    ]


def test_before_and_after_tells_a_difference_from_chance() -> None:
    text = text_of(front(everything()))
    assert "Before and after 12:13 UTC model m-2" in text
    assert "works 40 % 81 % +40 points" in text
    assert "grounded not enough not enough —" in text
    agent = everything()
    agent.asked = FakeQuestions(table=asked().table)
    assert "No new model, prompt_version or index_version" in text_of(front(agent))


def test_the_interval_of_a_difference_is_newcombes_and_is_wider_for_several() -> None:
    before, after = level(0.8, 0.03), level(0.75, 0.04)
    lower, upper = difference_interval(before, after, 1)
    assert (lower, upper) == pytest.approx((-0.05 - 0.05, -0.05 + 0.05))
    wide = difference_interval(before, after, 8)
    assert wide[0] == pytest.approx(-0.05 - 0.05 * 2.734 / 1.96, rel=1e-3)
    assert difference_interval(replace(before, upper=None), after, 1)[0] == -math.inf


@each_row(
    ("question", "before", "after", "words", "worse"),
    [
        ("grounded", level(0.84, 0.03), level(0.68, 0.03), "−16 points", True),
        ("grounded", level(0.84, 0.1), level(0.80, 0.1), "within chance", False),
        ("grounded", level(0.68, 0.03), level(0.84, 0.03), "+16 points", False),
        ("fast", level(3.1, 0.1), level(30.4, 0.3), "× 9.8", True),
        ("cost", level(0.00072, 1e-5), level(0.00086, 1e-5), "+19 %", True),
    ],
)
def test_a_change_in_words(question: str, before: Any, after: Any, words: str, worse: bool) -> None:
    (row,) = compare_all([(answer(question), before, after)])
    assert (row.change, row.worse) == (words, worse)
    assert row.beyond == (words != "within chance")


def test_small_changes_have_a_decimal_and_nothing_is_divided_by_zero() -> None:
    assert describe_change(answer("works"), 0.995, 0.99) == "−0.5 points"
    assert describe_change(answer("works"), 0.995, 0.985) == "−1 point"
    assert describe_change(answer("cost"), 0.0, 0.001) == "from $0"


def test_worst_questions_are_grouped_by_what_was_asked() -> None:
    ranked = [("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.2), ("e", 0.2)]
    texts = {"a": "One?", "b": "Two?", "c": " two? ", "d": None, "e": "One?"}
    rows = group_by_query(ranked, texts, str)
    assert [(row.text, row.count, row.value, row.trace_id, row.kept) for row in rows] == [
        ("One?", 2, "0.0", "a", True),
        ("Two?", 2, "0.0", "b", True),
        ("d", 1, "0.2", "d", False),
    ]


def worst_of(agent: FakeAgent, question: str = "grounded") -> QuestionsView:
    view = read_questions(as_agent_view(agent), "bot", ("1h", "24h"), question)
    assert view is not None
    return view


def test_worst_questions_come_from_the_most_trusted_score_that_knows_enough() -> None:
    agent = everything()
    agent.fake.bad = {
        ("bot", "grounding", "people"): [RankedTrace("t-1", 0.0, AT)],
        ("bot", "grounding", "mini"): [
            *(RankedTrace(f"m-{n}", 0.1, AT) for n in range(7)),
            RankedTrace("best", 1.0, AT),
        ],
    }
    agent.documents["bot", "m-3"] = {"trace": trace(query="Asked <b>often</b>")}
    agent.documents["bot", "m-5"] = {"trace": trace(query="asked <b>often</b>")}
    found = worst_of(agent).worst
    assert found is not None
    assert (found.series, found.window, found.traces) == (("grounding", "mini"), "1h", 7)
    assert (found.rows[0].text, found.rows[0].count) == ("Asked <b>often</b>", 2)
    assert len(found.rows) == ROWS
    page = front(agent, question="grounded")
    assert "Asked <b>often</b>" in page.text
    assert "/trace/bot/m-3?metric=grounding&scorer=mini" in page.links()
    assert not any(link.startswith("/trace/bot/m-0") for link in page.links()), "no longer kept"


def test_what_went_wrong_stands_beside_a_worst_question() -> None:
    agent = everything()
    agent.fake.bad = {("bot", "timeout", "builtin"): [RankedTrace("t-1", 1.0, AT)]}
    found = worst_of(agent, "works").worst
    assert found is not None
    assert found.rows[0].value == "timeout"
    agent.fake.bad = {("bot", "latency", "total"): [RankedTrace("t-1", 31.0, AT)]}
    found = worst_of(agent, "fast").worst
    assert found is not None
    assert found.rows[0].value == f"31.0{THIN}s"
    assert worst_of(agent, "cited").worst is None
    assert "No bad answer is known." in front(agent, question="cited").text


def test_where_has_the_segments_that_differ_first() -> None:
    text = text_of(front(everything()))
    assert "Segmentworksfast model=m-2 60 % ● differs 3 s model=m-1 95 % —" in text
    rows = [SegmentAnswer(f"model={n}", "works", level(n / 100), moved=n == 30) for n in range(40)]
    lines = sort_segments(rows, answer("works"))
    assert [line.segment for line in lines[:3]] == ["model=30", "model=0", "model=1"]
    agent = everything()
    agent.asked = FakeQuestions(table=asked().table, segments=rows)
    assert "34 more segments are in the details" in text_of(front(agent))


def test_without_questions_the_page_leads_to_the_details() -> None:
    agent = FakeAgent()
    agent.fake.table["bot", "", "grounding", "builtin", "1h"] = estimate()
    page = front(agent)
    assert "Nothing is known of its questions yet." in page.text
    assert "/service/bot/details" in page.links()


def test_the_details_say_why_scorers_differ() -> None:
    text = text_of(details(everything()))
    assert "One question may be measured by several scorers, and they differ" in text
    assert "used facts" in text
    assert "groundedness" not in text.replace("groundedness grade", "")


@each_row(
    ("states", "firing", "age", "status"),
    [
        ({}, (0, 0), 3.0, "OK"),
        ({"grounded": "bad"}, (1, 0), 3.0, "grounded bad"),
        ({"grounded": "moved", "fast": "moved"}, (0, 0), 3.0, "2 moved"),
        ({"grounded": "bad", "fast": "moved"}, (0, 0), 3.0, "grounded bad, fast moved"),
        ({}, (0, 1), 3.0, "1 incident"),
        ({}, (0, 0), 1200.0, f"no request for 20{THIN}min"),
        (
            dict.fromkeys((one.name for one in QUESTIONS), "not enough"),
            (0, 0),
            3.0,
            "not enough yet",
        ),
    ],
)
def test_a_status_in_words(
    states: dict[str, Any], firing: tuple[int, int], age: float, status: str
) -> None:
    answers = [answer(one.name, state=states.get(one.name, "good")) for one in QUESTIONS]
    assert FleetRow("bot", answers, 10, age, firing).status == status


def test_the_fleet_has_a_column_for_each_question() -> None:
    agent = everything()
    agent.fake.table["other", "", "grounding", "builtin", "1h"] = estimate()
    agent.asked = asked("bot", "other")
    text = text_of(fleet(agent))
    assert "works fast answered grounded retrieved cited complete cost" in text
    assert "81 % ■ bad76 to 86" in text
    assert "not enough yet1 h: −9 points" in text


def test_a_trace_has_a_row_for_each_question_and_the_rest_folded() -> None:
    agent = everything()
    scores = [
        {"metric": "grounding", "scorer": "builtin", "state": "scored", "value": 0.66},
        {"metric": "grounding", "scorer": "mini@1", "state": "scored", "value": 0.03},
        {"metric": "timeout", "scorer": "builtin", "state": "scored", "value": 1.0},
        {"metric": "answered", "scorer": "builtin", "state": "not_applicable"},
        {"metric": "cost_usd", "scorer": "builtin", "state": "scored", "value": 0.002},
        *(
            {"metric": f"nugget_{n}", "scorer": "autonuggetizer", "state": "sampled_out"}
            for n in range(23)
        ),
    ]
    agent.documents["bot", "t-1"]["results"] = scores
    page = traced(agent)
    text = text_of(page)
    rows = text.split("This request ")[1].split("every score")[0]
    assert rows.strip() == (
        "workstimeout no fast 2.41 s answered does not apply groundedgrounding · 0–1 · mini 0.03"
        " retrieved not measured cited not measured complete not measured cost $2 per 1,000"
    )
    assert "every score: 4" in text
    assert "not measured: 23" in text
    assert "does not apply: 1" in text
    opened = [attrs for tag, attrs in page.tags if tag == "details" and "open" in attrs]
    assert opened == []


def test_a_movement_that_is_nothing_is_told_as_nothing() -> None:
    agent = everything()
    own = list(asked().table["bot"])
    own[3] = answer("grounded", level=None, usual=None, movement=Movement(0.2, -1.0, 1.4))
    agent.asked = FakeQuestions(table={"bot": own}, new=[Change(AT, "model", "x")])
    assert "1 h: within chance of usual" in text_of(front(agent))


def test_a_level_of_a_day_that_has_moved_stands_beside_its_usual_and_the_hour() -> None:
    agent = everything()
    own = list(asked().table["bot"])
    own[3] = answer(
        "grounded",
        level=level(window="24h"),
        usual=0.9,
        movement=Movement(-9.0, -12.0, -6.0),
        state="moved",
    )
    agent.asked = FakeQuestions(table={"bot": own})
    shown = "grounded ▲ moved 80 % 75 to 85 in 24h usual 90 %; 1 h: −9 points"
    assert shown in text_of(front(agent))


def test_a_source_that_switched_is_marked_on_the_chart_of_its_question() -> None:
    agent = everything()
    own = FakeQuestions(table=asked().table)
    own.switched = [
        SourceChange(AT - 3600, "grounded", "labels", "judge"),
        SourceChange(AT - 3600, "cited", "judge", "labels"),
    ]
    agent.asked = own
    page = text_of(front(agent, question="answered"))
    assert "instead of" not in page
    page = text_of(front(agent, question="cited"))
    assert page.count("measured by the judge instead of labels") == 2  # the mark and its key
    assert "measured by labels" not in page


def test_what_the_judge_costs_stands_beside_the_cost() -> None:
    agent = everything()
    agent.judges = [{"judge": "judge", "model": "m-1"}]
    agent.counters.inc("ragmeter_judge_cost_usd_total", (("judge", "judge"),), 0.02)
    text = text_of(front(agent))
    assert "the judge adds $0.5" in text
    assert "Of 1,000 answers of all services the judge adds $0.5." in text
