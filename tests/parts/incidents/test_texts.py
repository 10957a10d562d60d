"""What a person reads of each kind of incident, also where names are long and hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule, load_rules
from ragmeter.parts.incidents.cause import IncidentFacts
from ragmeter.parts.incidents.texts import MAX_LINE, MAX_SUMMARY, MAX_TITLE, write_texts
from ragmeter.parts.views import Change, Incident, IncidentKind, IncidentUnit

from tests.exporters.alerts import make
from tests.tables import each_row

AT = 1_779_935_700.0  # 02:35 UTC

OLD_PHRASES = (
    "even the upper end",
    "even the lower end",
    "by chance at most",
    "moved unlike the rest",
    "no data now",
    "the share of grounding above",
    "false alarm at most",
    "level since the change",
    "went from",
    "shift of shares",
    "effective samples",
    "interval",
    "threshold",
)

UNITS: dict[IncidentKind, tuple[IncidentUnit, float, float]] = {
    "slow": ("seconds", 3.3, 19.5),
    "cost": ("usd", 0.00016, 0.00031),
    "retries": ("usd", 0.00016, 0.00031),
    "ungrounded": ("points", 66.0, 41.0),
    "wrong_passages": ("points", 54.0, 1.0),
    "same_passages": ("points", 54.0, 1.0),
    "citations": ("points", 80.0, 44.0),
    "no_traffic": ("count", 720.0, 0.0),
    "rule": ("count", 10.0, 31.0),
}

HOSTILE = 'x" onload=\u202eevil\n{{ .Labels }} <script>' + "ü" * 300


def incident(kind: IncidentKind, **changes: object) -> Incident:
    unit, usual, level = UNITS.get(kind, ("share", 0.01, 0.37))
    better: Literal["higher", "lower"] = "higher" if unit == "points" else "lower"
    if kind in ("refusals", "incomplete"):
        better = "higher"
    if kind in ("refusals", "incomplete"):
        usual, level = 0.95, 0.63
    alert: Alert = make(rule="ErrorsHigh", metric="error")
    bare = Incident(
        id="0123456789abcdef",
        service="policy-bot",
        question="works",
        kind=kind,
        severity="page",
        state="open",
        since=AT,
        since_lower=AT - 60,
        since_upper=AT + 60,
        opened_at=AT + 300,
        updated_at=AT + 600,
        usual=usual,
        level=level,
        lower=0.55 if unit == "share" else None,
        upper=0.71 if unit == "share" else None,
        unit=unit,
        better=better,
        harm=0.32,
        worst_questions=(("Can I cancel my policy by mail?", 3),),
        signals=(alert,),
    )
    return replace(bare, **changes)  # type: ignore[arg-type]


FACTS = IncidentFacts(
    level_failures={"error": 0.12, "timeout": 0.07},
    segment_share=0.27,
    rest=3.2,
    change_share=1.0,
    before="v12",
    tokens=(2.1, 1.9),
    set_share=0.98,
    set_usual=0.02,
    stage="generation",
    stage_times=(2.1, 18.0),
    hourly=720.0,
    daily=17_280.0,
)

KINDS: tuple[IncidentKind, ...] = get_args(IncidentKind)


def all_text(one: Incident) -> str:
    return "\n".join((one.title, one.summary, *one.detail, one.advice))


def check(one: Incident) -> None:
    assert one.title
    assert one.summary
    assert len(one.title) <= MAX_TITLE
    assert len(one.summary) <= MAX_SUMMARY
    assert all(len(line) <= MAX_LINE for line in one.detail)
    text = all_text(one)
    assert text.replace("\n", "").isprintable(), "no line is broken, no direction turned"
    assert not [phrase for phrase in OLD_PHRASES if phrase in text.lower()]


@each_row("kind", KINDS)
@each_row("state", ["open", "no traffic", "not measured", "over"])
def test_every_kind_is_told_in_140_characters(kind: IncidentKind, state: str) -> None:
    """Open, without traffic, no longer measured, and over, by short names and by hostile ones."""
    ended = AT + 3_600 if state == "over" else None
    for service in ("policy-bot", HOSTILE):
        for segment in ("", "tenant=globex", f"{HOSTILE}={HOSTILE}"):
            for change in (None, Change(AT, "prompt_version", "v13"), Change(AT, HOSTILE, HOSTILE)):
                one = incident(
                    kind,
                    service=service,
                    state=state,
                    ended_at=ended,
                    segment=segment,
                    change=change,
                    worst_questions=((HOSTILE, 7),),
                )
                check(write_texts(one, FACTS, 0.03))
    closed = incident(kind, state="no traffic", ended_at=AT + 86_400)
    check(write_texts(closed, IncidentFacts(), None))
    assert "not known to be over" in write_texts(closed, IncidentFacts(), None).title


@each_row("kind", KINDS)
def test_a_title_says_what_is_wrong_for_the_user(kind: IncidentKind) -> None:
    one = write_texts(incident(kind), FACTS, 0.03)
    assert one.title.startswith("policy-bot: ")
    assert "Rag" not in one.title or kind == "rule"
    assert one.detail


@pytest.mark.parametrize(
    ("kind", "state"), [("rule", "open"), ("rule", "over"), ("measuring", "open")]
)
def test_groundedness_is_called_used_facts(kind: IncidentKind, state: str) -> None:
    """Others call something else groundedness."""
    alert = make(rule="FactsLow", metric="groundedness", unscored={"judge_error": 3})
    ended = AT + 3_600 if state == "over" else None
    bare = incident(kind, state=state, ended_at=ended, signals=(alert, make(rule="FactsGone")))
    text = all_text(write_texts(bare, FACTS, 0.03))
    assert "used facts" in text
    assert "groundedness" not in text


@each_row("rule", load_rules(), ids=lambda rule: rule.name)
def test_every_default_rule_is_told_in_140_characters(rule: AlertRule) -> None:
    """Its summary stands beside that of the incident, as the words of a signal."""
    text = rule.summary.format(
        service="customer-support-bot",
        metric="citation_precision",
        scorer="judge",
        value="0.412",
        lower="0.387",
        upper="0.438",
        samples="1284",
        window="24h",
        threshold="0.75",
        reason="judge_unavailable",
    )
    assert len(text) <= MAX_SUMMARY
    assert not [phrase for phrase in OLD_PHRASES if phrase in text.lower()]


def test_a_prompt_that_refuses() -> None:
    """As a pager should show it (review: policy-bot)."""
    change = Change(AT, "prompt_version", "v13")
    one = write_texts(incident("refusals", change=change, question="answered"), FACTS, 0.05)
    assert one.title == "policy-bot: prompt v13 refuses 37 % of questions"
    assert one.summary.startswith("Answered 95 % -> 63 % (55-71) since 02:35 UTC, everywhere.")
    assert "With prompt v13" in one.summary
    assert one.detail[0] == "Changed: prompt_version v12 -> v13 at 02:35 UTC, 100 % of requests."
    assert 'Worst question, 3x: "Can I cancel my policy by mail?"' in one.detail
    assert "Effect: about 32 % of all answers are hurt, some 230 an hour." in one.detail
    assert one.detail[-1] == "Ends when answered is back above 90 % for 15 min."
    assert one.advice == "Roll back prompt v13."


def test_what_an_index_says_of_users_is_called_an_estimate() -> None:
    """As a share it would be taken for one that was counted."""

    def effect(harm: float) -> str:
        one = incident("ungrounded", question="grounded", segment="tenant=globex", harm=harm)
        return next(x for x in write_texts(one, FACTS, 3.0).detail if x.startswith("Effect"))

    some = "an estimated 20 % of all answers are hurt (tenant globex has 27 %), some 144 an hour."
    assert effect(0.20) == f"Effect: {some}"
    assert effect(0.27) == "Effect: up to 27 % of all answers are hurt, some 194 an hour."


def test_a_tenant_that_waits() -> None:
    one = write_texts(incident("slow", segment="tenant=globex", service="shop-bot"), FACTS, 0.8)
    assert one.title == "shop-bot: tenant globex waits 19.5 s"
    assert one.summary == (
        "p95 3.3 s -> 19.5 s since 02:35 UTC, for tenant globex (27 % of requests). "
        "It is generation. Others as usual."
    )
    assert "Where: tenant globex, 27 % of requests; the others: 3.2 s." in one.detail
    assert "Stage: generation 2.1 s -> 18 s (p95)." in one.detail


def test_costs_are_told_by_the_thousand_and_by_the_day() -> None:
    one = write_texts(incident("retries", service="search-bot", harm=None), FACTS, 0.00003)
    assert one.title == "search-bot: cost per answer doubled: retries?"
    assert one.summary.startswith("Cost $0.16 -> $0.31 per 1,000 answers since 02:35 UTC")
    assert "Tokens in x2.1, out x1.9" in one.summary
    assert "Effect: +2.59 USD a day at this traffic." in one.detail


def test_what_is_over_says_what_it_is_now_and_how_long_it_lasted() -> None:
    one = incident("refusals", state="over", level=0.95, ended_at=AT + 48 * 60)
    over = write_texts(one, FACTS, 0.05)
    assert over.title == "policy-bot: over: refusals"
    assert over.summary == "Answered now 95 %, usual 95 %; lasted 48 min (02:35 UTC to 03:23 UTC)."
    assert over.advice == ""


def test_silence_is_no_all_clear() -> None:
    silent = write_texts(incident("refusals", state="no traffic"), FACTS, 0.05)
    assert silent.summary.startswith("No traffic now; last known: Answered 95 % -> 63 %")
    unmeasured = write_texts(incident("refusals", state="not measured"), FACTS, 0.05)
    assert unmeasured.summary.startswith("No longer measured; last known:")
