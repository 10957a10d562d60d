"""The terminal's rows of questions and lines of incidents."""

from __future__ import annotations

import io
from collections.abc import Iterable

from ragmeter.alerts.alert import Alert
from ragmeter.cli.question_table import WIDTH, fleet_table, service_lines
from ragmeter.parts.views import Answer, Level, Movement
from rich.console import Console, RenderableType

from tests.exporters.fakes import alert

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


def lines(shown: list[Answer], alerts: list[Alert], question: str = "Why?") -> str:
    return printed(
        service_lines(
            name="help-desk",
            requests="284 requests in the last 24h",
            answers=shown,
            alerts=alerts,
            now=1_790_000_000.0,
            question_of=lambda service, trace_id: question,
        )
    )


def test_a_service_fits_into_a_terminal_of_100_columns_and_30_lines() -> None:
    alerts = [
        alert(id=str(n), rule="R" * 80, service="help-desk", summary="word " * 90, worst=["x"])
        for n in range(12)
    ]
    text = lines(answers(), alerts, "what " * 100)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert len(text.splitlines()) <= 30
    for name in NAMES:
        assert f"\n {name} " in text
    assert "and 7 more on the page" in text


def test_every_row_has_number_interval_usual_change_and_source() -> None:
    text = lines(answers(), [])
    row = next(row for row in text.splitlines() if row.startswith(" grounded"))
    assert "81 % (73 to 89) in 24h" in row
    assert "97 %" in row
    assert "-19 points ▲" in row
    assert "143 labels + model" in row
    cost = next(row for row in text.splitlines() if row.startswith(" cost"))
    assert "$0.86 / 1,000" in cost


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
    firing = alert(rule="R", service="help-desk", summary=HOSTILE, worst=["x"])
    text = lines(answers(), [firing], HOSTILE)
    assert text.count("[red]x[/]") == 2
    assert "\x1b" not in text
    fleet = printed([fleet_table({HOSTILE: answers(), "other": answers()}, [])])
    assert "[/foo] [red]x[/]" in fleet
    assert "\x1b" not in fleet


def test_of_several_services_the_one_that_pages_comes_first() -> None:
    firing = alert(service="b", severity="critical")
    text = printed([fleet_table({"a": answers(), "b": answers()}, [firing])])
    rows = [row for row in text.splitlines() if row.startswith((" a ", " b "))]
    assert [row[1] for row in rows] == ["b", "a"]
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_the_judge_adds_stands_beside_the_cost() -> None:
    text = printed(
        service_lines(
            name="bot",
            requests="9 requests",
            answers=answers(),
            alerts=[],
            now=None,
            question_of=lambda service, trace_id: "",
            judge_usd=0.0004,
        )
    )
    (cost,) = [line for line in text.splitlines() if "$0.86 / 1,000" in line]
    assert cost.split()[0] == "cost"
    assert text.count("judge adds $0.4") == 1
    assert max(map(len, text.splitlines())) <= WIDTH
