"""What a person reads of an incident: title, summary, detail, and what to do.

A title says what is wrong for the user. A summary has at most `MAX_SUMMARY` characters, with both
levels, since when and where. Names come from outside: they are cleaned, and cut as far as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ragmeter.alerts.alert import Alert, clean_text, format_number
from ragmeter.core.metric_specs import spoken_name
from ragmeter.parts.incident_words import clock, length
from ragmeter.parts.incidents.cause import IncidentFacts, describe_failures, fault_share
from ragmeter.parts.incidents.signals import is_of_goal
from ragmeter.parts.views import Change, Incident, IncidentKind

MAX_TITLE = 100  # characters
MAX_SUMMARY = 140
MAX_LINE = 300  # of the detail
MAX_QUESTIONS = 3

_NAME_LENGTHS = (40, 24, 14, 8)  # characters of a name, the first that fits

_KINDS: dict[IncidentKind, tuple[str, str]] = {
    "errors": ("errors", "Open the errors of the worst traces and ask who serves the request."),
    "timeouts": ("timeouts", "See which stage waits: the model's provider or the retriever."),
    "empty": ("empty answers", "Open the worst traces: the model ends without any text."),
    "failures": ("failed requests", "Open the errors of the worst traces; see the provider."),
    "slow": ("slow answers", "Ask the provider of the slow stage, or route around it."),
    "refusals": ("refusals", "Read three refused questions; compare prompt and passages."),
    "ungrounded": ("unsupported answers", "Read the worst answers beside their passages."),
    "wrong_passages": ("irrelevant passages", "Check the index and its embedding model."),
    "same_passages": (
        "the same passages for all",
        "Roll the index back or build it anew.",
    ),
    "citations": ("unsupported citations", "Read the worst citations; compare the prompt."),
    "incomplete": ("incomplete answers", "Compare the worst answers with their passages."),
    "cost": ("the cost of answers", "No need to get up: see tokens, model and price."),
    "retries": ("repeated requests", "No need to get up: look for retries in the client."),
    "cut_off": (
        "answers that are cut off",
        "See the finish reasons: raise the limit of tokens, or mend the content filter.",
    ),
    "no_traffic": ("missing requests", "See whether the service runs and its traces are sent."),
    "canaries": ("failing test questions", "Ask the failing test questions by hand."),
    "measuring": ("measuring", "See the scorer's own errors; answers may be as good as ever."),
    "rule": ("a rule of yours", "See the rule and its runbook."),
}
"""How each kind is called once it is over, and what to do where nothing better is known."""

_NUMBER_NAMES: dict[IncidentKind, str] = {
    "errors": "Failed requests",
    "timeouts": "Timeouts",
    "empty": "Empty answers",
    "failures": "Failed requests",
    "slow": "p95",
    "refusals": "Answered",
    "ungrounded": "Support by passages",
    "wrong_passages": "Relevance of passages",
    "same_passages": "Relevance of passages",
    "citations": "Support of citations",
    "incomplete": "Vital facts told",
    "cost": "Cost",
    "retries": "Cost",
    "cut_off": "Cut off",
    "no_traffic": "Requests",
    "canaries": "Failing test questions",
    "measuring": "Not scored",
    "rule": "Value",
}

_SHARE_NAMES: dict[IncidentKind, str] = {
    "ungrounded": "Supported by passages",
    "wrong_passages": "With a relevant passage",
    "citations": "Supported citations",
}
"""The same of the level of a question, where that is another number."""

_FAILURE_NAMES = {"error": "errors", "timeout": "timeouts", "empty_answer": "empty answers"}


def write_texts(incident: Incident, facts: IncidentFacts, least: float | None = None) -> Incident:
    """Return an incident with its texts.

    Args:
        incident: All but the texts.
        facts: What else is known.
        least: The least shift that matters, in the unit of the incident.
    """
    return replace(
        incident,
        title=_title(incident, facts),
        summary=_summary(incident, facts),
        detail=_detail(incident, facts, least),
        advice=_advice(incident),
    )


def short_name(text: str, limit: int = _NAME_LENGTHS[0]) -> str:
    """Return a name from outside in one clean line of bounded length."""
    return " ".join(clean_text(text, limit).split())


def _metric_words(metric: str) -> str:
    return short_name(spoken_name(metric), 30)


def format_value(value: float | None, unit: str) -> str:
    """Return a number with its unit."""
    if value is None:
        return "unknown"
    if unit == "share":
        percent = 100 * value
        digits = 0 if percent >= 10 or percent < 0.05 or abs(percent - round(percent)) < 0.05 else 1
        return f"{percent:.{digits}f} %"
    if unit == "seconds":
        return f"{value:.0f} s" if value >= 20 else f"{value:.3g} s"
    if unit == "usd":
        return f"${1000 * value:,.2f}"
    if unit == "points":
        return f"{value:.0f}"
    return format_number(value)


def _segment_words(segment: str, limit: int = _NAME_LENGTHS[0]) -> str:
    tag, _, value = segment.partition("=")
    names = {"prompt_version": "prompt", "index_version": "index"}
    return f"{short_name(names.get(tag, tag), limit)} {short_name(value, limit)}"


def _change_words(change: Change, limit: int = _NAME_LENGTHS[0]) -> str:
    return _segment_words(f"{change.tag}={change.value}", limit)


def _title(incident: Incident, facts: IncidentFacts) -> str:
    service = incident.service
    if incident.state == "over":
        return _fit(
            lambda n: f"{short_name(service, n)}: over: {_KINDS[incident.kind][0]}", MAX_TITLE
        )
    if incident.ended_at is not None:
        return _fit(
            lambda n: (
                f"{short_name(service, n)}: closed, not known to be over: "
                f"{_KINDS[incident.kind][0]}"
            ),
            MAX_TITLE,
        )
    return _fit(lambda n: f"{short_name(service, n)}: {_problem(incident, facts, n)}", MAX_TITLE)


def _problem(incident: Incident, facts: IncidentFacts, limit: int) -> str:
    """Return what is wrong for the user, in a few words."""
    kind = incident.kind
    segment = incident.segment
    where = f" for {_segment_words(segment, limit)}" if segment else ""
    level = incident.level
    bad = None
    if level is not None and incident.unit == "share":
        bad = format_value(level if incident.better == "lower" else 1 - level, "share")
    if kind in ("errors", "failures"):
        return f"{bad or 'some'} of requests fail{where}"
    if kind == "timeouts":
        return f"{bad or 'some'} of requests time out{where}"
    if kind == "empty":
        return f"{bad or 'some'} of answers are empty{where}"
    if kind == "slow":
        waits = "slow" if level is None else format_value(level, "seconds")
        if segment:
            return f"{_segment_words(segment, limit)} waits {waits}"
        return f"users wait {waits} for an answer"
    if kind == "refusals":
        change = incident.change
        if change is not None and facts.change_share > 0.5 and not segment:
            return f"{_change_words(change, limit)} refuses {bad or 'many'} of questions"
        return f"{bad or 'some'} of questions are refused{where}"
    if kind == "ungrounded":
        if bad is not None:
            return f"{bad} of answers are not supported by their passages{where}"
        return f"answers are supported less by their passages{where}"
    if kind == "wrong_passages":
        nothing = level is not None and incident.unit == "points" and level < 15
        return (
            f"retrieval finds {'nothing relevant' if nothing else 'less that is relevant'}{where}"
        )
    if kind == "same_passages":
        return f"{format_value(facts.set_share, 'share')} of questions get the same passages{where}"
    if kind == "citations":
        return f"citations support their statements less{where}"
    if kind == "incomplete":
        return f"answers leave out vital facts{where}"
    if kind in ("cost", "retries"):
        doubt = ": retries?" if kind == "retries" else ""
        return f"cost per answer {_times(incident)}{where}{doubt}"
    if kind == "cut_off":
        return f"{bad or 'some'} of answers are cut off{where}"
    return _other_problem(incident, bad, where)


def _other_problem(incident: Incident, bad: str | None, where: str) -> str:
    kind = incident.kind
    if kind == "no_traffic":
        return "no requests come any more"
    if kind == "canaries":
        return "test questions are answered worse"
    signal = incident.signals[0] if incident.signals else None
    if kind == "measuring":
        if signal is not None and signal.unscored is not None:
            return f"{bad or 'many'} of {_metric_words(signal.metric)} scores fail"
        return "the judge measures differently than before"
    name = short_name(signal.rule, 30) if signal is not None else "a rule"
    value = format_value(incident.level, incident.unit)
    metric = _metric_words(signal.metric) if signal is not None else "value"
    return f"{name}: {metric} is {value}{where}"


def _times(incident: Incident) -> str:
    if not incident.usual or incident.level is None:
        return "rose"
    factor = incident.level / incident.usual
    if 1.8 <= factor <= 2.25:
        return "doubled"
    return f"is {factor:.1f} times as high" if factor >= 1.1 else "rose"


def _summary(incident: Incident, facts: IncidentFacts) -> str:
    now = incident.updated_at
    since = f"since {clock(incident.since, now)}"
    if incident.ended_at is not None:
        return _ended_summary(incident)

    def compose(limit: int, extras: int) -> str:
        where = "everywhere"
        if incident.segment:
            share = format_value(facts.segment_share, "share")
            where = f"for {_segment_words(incident.segment, limit)} ({share} of requests)"
        more = _more(incident, facts, limit)[:extras]
        head = f"{_levels(incident, facts)} {since}, {where}"
        return ". ".join([head, *more]) + "."

    if incident.state == "no traffic":
        known = f"{_levels(incident, facts)} {since}"
        return _fit(lambda n: f"No traffic now; last known: {known}.", MAX_SUMMARY)
    if incident.state == "not measured":
        known = f"{_levels(incident, facts)} {since}"
        return _fit(lambda n: f"No longer measured; last known: {known}.", MAX_SUMMARY)
    for extras in (3, 2, 1, 0):
        for limit in _NAME_LENGTHS[:3]:
            text = compose(limit, extras)
            if len(text) <= MAX_SUMMARY:
                return text
    return clean_text(compose(_NAME_LENGTHS[-1], 0), MAX_SUMMARY)


def _levels(incident: Incident, facts: IncidentFacts) -> str:
    """Return both levels, the usual one and the present one."""
    kind = incident.kind
    name = _NUMBER_NAMES[kind]
    if kind in _SHARE_NAMES and incident.unit == "share":
        name = _SHARE_NAMES[kind]
    unit = incident.unit
    usual = format_value(incident.usual, unit)
    level = format_value(incident.level, unit)
    if kind == "failures" and facts.level_failures:
        parts = [
            f"{_FAILURE_NAMES[metric]} {format_value(share, 'share')}"
            for metric, share in describe_failures(facts.level_failures)[:2]
        ]
        text = ", ".join(parts)
        return f"{text[:1].upper()}{text[1:]} (usual {usual})"
    if kind == "no_traffic":
        return "No requests"
    if kind == "measuring" and incident.usual is None:
        return f"{name} {level}" if incident.level is not None else "The measured level moved"
    if kind == "rule" and incident.signals:
        name = _metric_words(incident.signals[0].metric)
    interval = ""
    if unit == "share" and incident.lower is not None and incident.upper is not None:
        interval = f" ({100 * incident.lower:.0f}-{100 * incident.upper:.0f})"
    ends = {"usd": " per 1,000 answers", "points": " of 100"}.get(unit, "")
    if incident.usual is None:
        goal = _goal_of(incident)
        wanted = "" if goal is None else f", goal {format_value(goal.threshold, unit)}"
        return f"{name} {level}{interval}{ends}{wanted}"
    return f"{name} {usual} -> {level}{interval}{ends}"


def _more(incident: Incident, facts: IncidentFacts, limit: int) -> list[str]:
    """Return what else a summary says if there is room, the most telling first."""
    more = []
    change = incident.change
    if change is not None:
        part = (
            f" ({format_value(facts.change_share, 'share')})" if facts.change_share < 0.95 else ""
        )
        if incident.segment != f"{change.tag}={change.value}":
            more.append(f"With {_change_words(change, limit)}{part}")
    if _serves_one_set(incident, facts):
        more.append(f"{format_value(facts.set_share, 'share')} get the same passages")
    if incident.kind == "slow" and facts.stage:
        more.append(f"It is {short_name(facts.stage, limit)}")
    if incident.kind in ("cost", "retries") and facts.tokens is not None:
        tokens_in, tokens_out = facts.tokens
        more.append(f"Tokens in x{tokens_in:.1f}, out x{tokens_out:.1f}")
    if incident.segment:
        more.append("Others as usual")
    return more


def _serves_one_set(incident: Incident, facts: IncidentFacts) -> bool:
    of_passages = incident.question in ("retrieved", "answered", "grounded")
    return incident.kind == "same_passages" or (of_passages and facts.set_share >= 0.5)


def _ended_summary(incident: Incident) -> str:
    ended = incident.ended_at or incident.updated_at
    lasted = length(ended - incident.since)
    span = f"{clock(incident.since, ended)} to {clock(ended)}"
    if incident.state != "over":
        why = "No traffic" if incident.state == "no traffic" else "No longer measured"
        level = format_value(incident.level, incident.unit)
        return _fit(
            lambda n: f"{why}: not known to be over. Last known {level}, after {lasted} ({span}).",
            MAX_SUMMARY,
        )
    if incident.kind == "no_traffic":
        return _fit(lambda n: f"Requests come again, after {lasted} ({span}).", MAX_SUMMARY)
    name = _NUMBER_NAMES[incident.kind]
    if incident.kind == "rule" and incident.signals:
        name = _metric_words(incident.signals[0].metric)
    if incident.level is None:
        return _fit(lambda n: f"Over after {lasted} ({span}).", MAX_SUMMARY)
    ends = {"usd": " per 1,000 answers", "points": " of 100"}.get(incident.unit, "")
    usual = (
        f", usual {format_value(incident.usual, incident.unit)}"
        if incident.usual is not None
        else ""
    )
    level = format_value(incident.level, incident.unit)
    return _fit(
        lambda n: f"{name} now {level}{ends}{usual}; lasted {lasted} ({span}).", MAX_SUMMARY
    )


def _detail(incident: Incident, facts: IncidentFacts, least: float | None) -> tuple[str, ...]:
    now = incident.updated_at
    lines: list[str] = []
    change = incident.change
    if change is not None:
        old = f"{short_name(facts.before)} -> " if facts.before else "new value "
        share = format_value(facts.change_share, "share")
        lines.append(
            f"Changed: {short_name(change.tag)} {old}{short_name(change.value)} at "
            f"{clock(change.at, now)}, {share} of requests."
        )
    elif incident.kind not in ("measuring", "no_traffic", "rule"):
        lines.append("Changed: no new model, prompt, index or tag within 10 minutes of the onset.")
    if incident.segment and facts.rest is not None:
        share = format_value(facts.segment_share, "share")
        rest = format_value(facts.rest, incident.unit)
        where = _segment_words(incident.segment)
        lines.append(f"Where: {where}, {share} of requests; the others: {rest}.")
    if facts.stage and facts.stage_times is not None and incident.kind == "slow":
        before, since = (format_value(one, "seconds") for one in facts.stage_times)
        lines.append(f"Stage: {short_name(facts.stage)} {before} -> {since} (p95).")
    if _serves_one_set(incident, facts):
        share, usually = (format_value(one, "share") for one in (facts.set_share, facts.set_usual))
        lines.append(
            f"Passages: one set for {share} of the requests; usually the most frequent one has "
            f"{usually}."
        )
    lines += question_lines(incident.worst_questions)
    effect = _effect(incident, facts)
    if effect:
        lines.append(effect)
    lines += [_goal_line(one) for one in incident.signals if is_of_goal(one)]
    also = _also(incident)
    if also:
        lines.append(f"Same incident: {', '.join(also)}.")
    if incident.ended_at is None:
        lines.append(_ends_when(incident, least))
    return tuple(clean_text(line, MAX_LINE) for line in lines)


def _goal_of(incident: Incident) -> Alert | None:
    """Return the goal that an incident is about, None where other signals tell more."""
    lead = incident.signals[0] if incident.signals else None
    return lead if lead is not None and is_of_goal(lead) else None


def _goal_line(alert: Alert) -> str:
    unit = {"fast": "seconds", "cost": "usd"}.get(alert.question, "share")
    value, goal = (format_value(one, unit) for one in (alert.value, alert.threshold))
    limit = "at most" if alert.op.startswith(">") else "at least"
    state = "missed" if alert.state == "firing" else "no longer missed"
    what = "failing requests" if alert.question == "works" else alert.question
    return f"Goal {state}: {what} {limit} {goal}, is {value} over {alert.window}."


def question_lines(questions: Sequence[tuple[str, int]]) -> list[str]:
    """Return a line for each of the three worst questions."""
    return [
        f'Worst question, {count}x: "{short_name(text, 120)}"'
        for text, count in questions[:MAX_QUESTIONS]
    ]


def _effect(incident: Incident, facts: IncidentFacts) -> str:
    level = incident.level
    usual = incident.usual
    most = fault_share(incident, facts)
    if incident.unit == "usd" and level is not None and usual is not None and facts.daily:
        return f"Effect: {(level - usual) * facts.daily * most:+,.2f} USD a day at this traffic."
    harm = incident.harm
    if harm is None or harm < 0.005:
        return ""
    hourly = harm * facts.hourly
    pace = f", some {hourly:,.0f} an hour" if hourly >= 1 else ""
    about = "about"
    whose = ""
    if incident.unit == "points":  # of an index it is an estimate
        about = "an estimated" if harm < most else "up to"
    if incident.segment and harm < most:
        whose = f" ({_segment_words(incident.segment)} has {format_value(most, 'share')})"
    hurt = format_value(harm, "share")
    return f"Effect: {about} {hurt} of all answers are hurt{whose}{pace}."


def _also(incident: Incident) -> list[str]:
    lead = incident.signals[0].metric if incident.signals else ""
    names = {
        "error": "errors",
        "timeout": "timeouts",
        "empty_answer": "empty answers",
        "latency": "latency",
        "answered": "answered",
        "grounding": "grounding",
        "relevance": "relevance",
        "cost_usd": "cost",
    }
    others = [
        names.get(one.metric, _metric_words(one.metric))
        for one in incident.signals
        if not is_of_goal(one)
    ]
    skipped = {names.get(lead, _metric_words(lead))}
    return [name for name in dict.fromkeys(others) if name not in skipped][:6]


def _ends_when(incident: Incident, least: float | None) -> str:
    if incident.kind == "no_traffic":
        return "Ends when requests come again."
    if _goal_of(incident) is not None:
        return "Ends when the goal has not been missed beyond doubt for 15 min."
    if incident.usual is None or least is None:
        return "Ends when the signals that opened it have ended."
    side = "below" if incident.better == "lower" else "above"
    limit = incident.usual + least if incident.better == "lower" else incident.usual - least
    name = _NUMBER_NAMES[incident.kind].lower()
    name = "p95" if name == "p95" else name
    ends = {"usd": " per 1,000 answers", "points": " of 100"}.get(incident.unit, "")
    where = f" for {_segment_words(incident.segment)}" if incident.segment else ""
    value = format_value(max(0.0, limit), incident.unit)
    return f"Ends when {name}{where} is back {side} {value}{ends} for 15 min."


def _advice(incident: Incident) -> str:
    if incident.ended_at is not None:
        return ""
    change = incident.change
    if change is not None and incident.kind not in ("measuring", "no_traffic"):
        return clean_text(f"Roll back {_change_words(change)}.", MAX_LINE)
    if incident.kind == "slow" and incident.segment:
        words = _segment_words(incident.segment)
        return clean_text(f"Ask the provider that serves {words}, or reroute it.", MAX_LINE)
    return _KINDS[incident.kind][1]


def _fit(make: Callable[[int], str], limit: int) -> str:
    """Return a text with names as long as the limit allows."""
    for most in _NAME_LENGTHS:
        text = make(most)
        if len(text) <= limit:
            return text
    return clean_text(text, limit)
