"""The terminal's rows of questions and lines of incidents."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace

from ragmeter.cli.question_table import WIDTH, fleet_table, service_lines
from ragmeter.parts.views import Answer, Incident, Level, Movement
from rich.console import Console, RenderableType

from tests.exporters.incidents import opened, over, refused

HOSTILE = "[/foo] [red]x[/] \x1b]0;y"
NAMES = ("works", "fast", "answered", "grounded", "retrieved", "cited", "complete", "cost")


def printed(parts: Iterable[RenderableType]) -> str:
    out = io.StringIO()
    console = Console(file=out, width=WIDTH)
    for part in parts:
        console.print(part, soft_wrap=False)
    return out.getvalue()


def level(value: float, lower: float, upper: float, window: str = "1h") -> Level:
    return Level(
        value=value,
        lower=lower,
        upper=upper,
        window=window,
        samples=143,
        worth=120.0,
        source="labels",
    )


def answers() -> list[Answer]:
    units = {"fast": "seconds", "cost": "usd"}
    made = []
    for name in NAMES:
        unit = units.get(name, "share")
        value = {"seconds": 30.27, "usd": 0.00086}.get(unit, 0.8114)
        made.append(
            Answer(
                question=name,
                meaning="",
                unit=unit,  # type: ignore[arg-type]
                better="higher",
                level=level(value, 0.9 * value, 1.1 * value, "24h"),
                movement=Movement(-18.9, -23.6, -14.1),
                usual=value * 1.2,
                state="moved",
                source="143 labels + model",
            )
        )
    return made


def lines(shown: list[Answer], incidents: list[Incident]) -> str:
    return printed(
        service_lines(
            name="help-desk",
            requests="284 requests in the last 24h",
            answers=shown,
            incidents=incidents,
            now=4480.0,
        )
    )


def test_a_service_fits_into_a_terminal_of_100_columns_and_30_lines() -> None:
    incidents = [
        refused(
            id=f"{n:016x}",
            service="help-desk",
            title="title " * 90,
            summary="word " * 90,
            worst_questions=(("what " * 100, 3),),
        )
        for n in range(12)
    ]
    text = lines(answers(), incidents)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert len(text.splitlines()) <= 30
    for name in NAMES:
        assert f"\n {name} " in text
    assert "and 9 more on the page" in text


def test_an_incident_says_what_is_wrong_since_when_and_with_which_change() -> None:
    text = lines(answers(), [opened(), refused(state="no traffic"), over()])
    assert "■ PAGE 20 % of requests fail\n" in text
    assert "       Errors 20 % (15 to 26), usual 0.4 %, since 00:14 UTC." in text
    assert "       since 00:14 UTC (60 min); incident 0123456789abcdef\n" in text
    assert "       worst: 10× “How do I" in text
    assert "▲ WARN prompt v13 refuses 37 % of questions (no traffic)" in text
    assert (
        "since 00:14 UTC (60 min); incident fedcba9876543210; prompt_version v13 at 00:14 UTC"
        in text
    )
    assert "work again" not in text


def test_an_incident_says_what_to_do_in_its_last_line() -> None:
    asked = "What is the time limit of a return by mail and who pays for it?"
    one = opened(advice="Roll back model assistant-v2.", worst_questions=((asked, 3),))
    text = lines(answers(), [one])
    assert (
        "       worst: 3× “What is the time limit of a return by ma…”; "
        "do: Roll back model assistant-v2.\n" in text
    )
    alone = "See the finish reasons: raise the limit of tokens, or mend the content filter."
    assert f"       do: {alone}\n" in lines(answers(), [replace(one, advice=alone)])


def test_every_row_has_number_interval_usual_change_and_source() -> None:
    text = lines(answers(), [])
    row = next(row for row in text.splitlines() if row.startswith(" grounded"))
    assert "81 % (73 to 89) in 24h" in row
    assert "97 %" in row
    assert "-19 points ▲" in row
    assert "143 labels + model" in row
    cost = next(row for row in text.splitlines() if row.startswith(" cost"))
    assert "$0.86 / 1,000" in cost


def test_a_change_that_may_be_chance_is_no_number() -> None:
    moved = Answer("cited", "", "share", "higher", level(0.8, 0.7, 0.9), usual=0.85)
    fell = lines([replace(moved, movement=Movement(-5.0, -9.0, -1.0))], [])
    assert "-5 points" in fell
    none = lines([replace(moved, movement=Movement(-5.0, -19.0, 9.0))], [])
    assert "within chance" in none
    assert "-5" not in none


def test_a_question_without_a_level_is_no_zero() -> None:
    bare = [Answer(question="grounded", meaning="", unit="share", better="higher")]
    text = lines(bare, [])
    assert "not enough yet" in text
    assert "0 %" not in text
    assert "No incident." in text


def test_a_calm_service_is_called_ok() -> None:
    calm = [Answer("works", "", "share", "higher", level(0.99, 0.98, 1.0), state="good")]
    assert "help-desk: 284 requests in the last 24h  OK" in lines(calm, [])


def test_names_and_texts_of_traces_are_no_markup_and_steer_nothing() -> None:
    incident = opened(title=HOSTILE, summary="", worst_questions=((HOSTILE, 1),))
    text = lines(answers(), [incident])
    assert text.count("[red]x[/]") == 2
    assert "\x1b" not in text
    fleet = printed([fleet_table({HOSTILE: answers(), "other": answers()}, [])])
    assert "[/foo] [red]x[/]" in fleet
    assert "\x1b" not in fleet


def test_of_several_services_the_one_that_pages_comes_first() -> None:
    page = opened(service="b")
    text = printed([fleet_table({"a": answers(), "b": answers()}, [page])])
    rows = [row for row in text.splitlines() if row.startswith((" a ", " b "))]
    assert [row[1] for row in rows] == ["b", "a"]
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_the_judge_adds_stands_beside_the_cost() -> None:
    text = printed(
        service_lines(
            name="bot",
            requests="9 requests",
            answers=answers(),
            incidents=[],
            now=None,
            judge_usd=0.0004,
        )
    )
    (cost,) = [line for line in text.splitlines() if "$0.86 / 1,000" in line]
    assert cost.split()[0] == "cost"
    assert text.count("judge adds $0.4") == 1
    assert max(map(len, text.splitlines())) <= WIDTH
