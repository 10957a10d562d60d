"""Nothing unredacted gets through: traces, spans, JSON in texts, and rules that fail."""

from __future__ import annotations

import json
import time
from itertools import permutations
from typing import Any

import pytest
from pydantic import ValidationError
from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.counters import Counts
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.ingest.redaction import HIDDEN, Redactor
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.metrics.builtin import PreparedTrace, score_cheap
from ragmeter.trace import Trace

from tests.tables import each_row

MAIL = "a.person@example.com"
CARD = 4111111111111111
ENDLESS = {"name": "endless", "pattern": r"(?i)(x+x+)+y"}
HOSTILE = "x" * 5000


def privacy(**fields: Any) -> PrivacySettings:
    return PrivacySettings.model_validate(fields)


def trace(**fields: Any) -> DecodedTrace:
    base = {"trace_id": "t", "service": "s", "timestamp": 0, **fields}
    item = decode_trace(json.dumps(base).encode(), 10**7)
    assert isinstance(item, DecodedTrace)
    return item


def span(**attributes: Any) -> Span:
    return Span("a" * 32, "b" * 16, attributes=attributes)


EVERYWHERE: dict[str, Any] = {
    "query": f"I am {MAIL}",
    "history": [{"role": MAIL, "text": MAIL}],
    "passages": [{"id": "p1", "text": f"from {MAIL}", "metadata": {"by": [{"x": MAIL}], MAIL: 1}}],
    "answer": f"Write to {MAIL} [1].",
    "error": {"message": MAIL},
    "tags": {"who": MAIL},
    "reference": {"answer": MAIL, "facts": [MAIL], "supports": [{"snippet": MAIL}]},
    "unknown": {"deep": MAIL},
}


def test_what_is_redacted_is_no_finding_again() -> None:
    redactor = Redactor(privacy(redact=["secret"]))
    first: Counts = {}
    text = redactor.text('Send {"api_key": "Abc123def456"} to it', first)
    again: Counts = {}
    assert text == 'Send {"api_key": "[secret]"} to it'
    assert redactor.text(text, again) == text
    assert (sum(first.values()), again) == (1, {})


def test_a_trace_keeps_no_trace_of_it() -> None:
    counts: Counts = {}
    redacted = Redactor(privacy(redact=["email"])).trace(trace(**EVERYWHERE), counts)
    assert MAIL.encode() not in redacted.body
    assert MAIL not in repr(redacted.trace)
    assert Trace.model_validate_json(redacted.body) == redacted.trace
    assert redacted.trace.answer == "Write to [email] [1]."
    assert redacted.trace.missing == {}
    assert counts == {("ragmeter_redactions_total", (("rule", "email"),)): 12}


REFERENCE: dict[str, Any] = {
    "answer": f"Ask {MAIL}.",
    "other_answers": [MAIL],
    "supports": [{"snippet": MAIL, "updated": "2026-01-01T00:00:00Z"}, {"rel_path": MAIL}],
    "facts": [MAIL],
    "keywords": [MAIL],
    "items": [MAIL],
    "checks": [{"name": MAIL, "patterns": [MAIL], "forbidden": [MAIL]}],
    "calculation": {"result": 604, "steps": [293]},
    "support_groups": [[0, 1]],
    "conflict": "cite_newer",
    "scope": [MAIL],
    "similarity": 0.5,
    "similarity_failed": False,
    "judged_facts": 0.5,
    "judge_failed": False,
}


def test_every_text_of_a_reference_is_redacted() -> None:
    good = trace(reference=REFERENCE)
    rules = ["email", {"name": "cite", "pattern": "cite_newer", "fields": ["reference"]}]
    redacted = Redactor(privacy(redact=rules)).trace(good, {}).trace.reference
    assert redacted is not None
    assert MAIL not in redacted.model_dump_json()
    # a new field has to stand here, too
    assert set(REFERENCE) | {"answerable"} == set(type(redacted).model_fields)
    given = good.trace.reference
    assert given is not None
    assert (
        redacted.supports[0].updated,
        redacted.calculation,
        redacted.conflict,
        redacted.support_groups,
    ) == (
        given.supports[0].updated,
        given.calculation,
        "cite_newer",
        [[0, 1]],
    )


def test_a_reference_that_cannot_be_redacted_is_gone_as_a_whole() -> None:
    clock = iter(range(0, 10**6, 10))  # every search begins when its time is over
    redactor = Redactor(privacy(redact=["email"]), monotonic=lambda: float(next(clock)))
    redacted = redactor.trace(trace(reference=REFERENCE), {})
    assert redacted.trace.reference is None
    assert MAIL.encode() not in redacted.body
    assert redacted.trace.canary  # and not taken for traffic


def test_without_rules_nothing_is_touched() -> None:
    good = trace(**EVERYWHERE)
    assert Redactor().trace(good, {}) is good


def test_fields_of_a_rule() -> None:
    rule = {"name": "email", "fields": ["answer"], "replacement": "\\1<gone>"}
    redacted = Redactor(privacy(redact=[rule])).trace(trace(query=MAIL, answer=MAIL), {}).trace
    assert (redacted.query, redacted.answer) == (MAIL, "\\1<gone>")


@pytest.mark.parametrize("names", list(permutations(("head", "tail"))))
def test_of_two_findings_that_overlap_all_is_replaced(names: tuple[str, str]) -> None:
    """Neither the beginning nor the end of a secret stays in the clear."""
    patterns = {"head": "first-middle", "tail": "middle-lasts"}
    rules = [{"name": name, "pattern": patterns[name]} for name in names]
    good = trace(answer="It is first-middle-lasts, they say.")
    redacted = Redactor(privacy(redact=rules)).trace(good, {}).trace
    assert redacted.answer == f"It is [{names[0]}], they say."


def test_a_finding_that_joins_two_longer_ones_makes_them_one() -> None:
    rules = [
        {"name": "left", "pattern": "first-middle"},
        {"name": "right", "pattern": "middle-in-the-end"},
        {"name": "bridge", "pattern": "e and m"},
    ]
    good = trace(answer="It is first-middle and middle-in-the-end, they say.")
    redacted = Redactor(privacy(redact=rules)).trace(good, {}).trace
    assert redacted.answer == "It is [right], they say."


def test_citations_move_with_the_text() -> None:
    answer = f"Ask {MAIL} or {MAIL}. Yes."
    first, second = answer.index("Ask"), answer.index("Yes")
    citations = [
        {"start": first, "end": answer.index(".", answer.rindex("@") + 9)},
        {"start": second, "end": second + 4},
        {"start": answer.index("@"), "end": answer.index("@") + 2},
        {"passage_ids": ["p"]},
    ]
    rules = ["email", {"name": "or", "pattern": r"\bor\b", "replacement": "and then"}]
    redacted = Redactor(privacy(redact=rules)).trace(trace(answer=answer, citations=citations), {})
    text, cited = redacted.trace.answer or "", redacted.trace.citations or []
    assert text == "Ask [email] and then [email]. Yes."
    spans = [text[one.start : one.end] for one in cited if one.start is not None]
    assert spans == ["Ask [email] and then [email]", "Yes.", "[email]"]


def test_dropped_names() -> None:
    names = {"drop_attributes": ["user.*", "*secret*"]}
    given = {
        "tags": {"user.id": 1, "my_secret": 2, "tenant": 3},
        "passages": [{"id": "p", "metadata": {"user.id": 1, "a": {"secret": 1, "b": 2}}}],
    }
    redacted = Redactor(privacy(**names)).trace(trace(**given), {}).trace
    assert redacted.tags == {"tenant": "3"}
    assert (redacted.passages or [])[0].metadata == {"a": {"b": 2}}
    one = span(**{"user.id": 1, "x": json.dumps({"secret": 1, "y": 2}), "tenant": "3"})
    one.resource = {"user.name": "n"}
    one.events = [SpanEvent("e", attributes={"user.x": 1})]
    clean = Redactor(privacy(**names)).span(one, {})
    assert clean.attributes == {"x": '{"y": 2}', "tenant": "3"}
    assert (clean.resource, clean.events[0].attributes) == ({}, {})


@each_row(
    "value",
    [
        MAIL,
        json.dumps({"q": MAIL, "n": CARD}),
        json.dumps([json.dumps({"page_content": MAIL})]),  # JSON in JSON, as LlamaIndex writes it
        json.dumps({"q": MAIL}).replace("@", "\\u0040"),
        json.dumps({"q": MAIL}).replace("@", "\\u0040")[:-1],  # cut on its way
        f'{{"q": "\\n{CARD}',
        [{"a": [MAIL, CARD]}],
        {"kv": {MAIL: CARD}},
        CARD,
    ],
)
def test_no_form_of_an_attribute_hides_it(value: Any) -> None:
    one = span(**{"input.value": value, "n": 12, "ok": True, "f": 0.5, "none": None})
    one.name = one.status_message = f"failed for {MAIL}"
    one.events = [SpanEvent("exception", attributes={"exception.message": MAIL})]
    one.resource = {"owner": MAIL}
    counts: Counts = {}
    redacted = Redactor(privacy(redact=["email", "credit_card"])).span(one, counts)
    shown = repr(redacted).replace("\\\\", "\\").replace("\\u0040", "@")
    assert MAIL not in shown
    assert str(CARD) not in shown
    assert (redacted.attributes["n"], redacted.attributes["ok"]) == (12, True)
    log = LogEvent("a" * 32, "b" * 16, SpanEvent("e", attributes={"body": value}))
    shown = repr(Redactor(privacy(redact=["email", "credit_card"])).log_event(log, {}))
    assert MAIL not in shown.replace("\\\\", "\\").replace("\\u0040", "@")


def test_json_stays_readable_and_what_has_nothing_stays_as_it_was() -> None:
    redactor = Redactor(privacy(redact=["email", "credit_card"]))
    whole = json.dumps({"q": MAIL, "card": CARD, "é": 1.50})
    redacted = redactor.span(span(a=whole, b='{"x":  1.50,"y":"C:\\\\new"}', c="C:\\new"), {})
    assert json.loads(str(redacted.attributes["a"])) == {
        "q": "[email]",
        "card": "[credit_card]",
        "é": 1.5,
    }
    assert redacted.attributes["b"] == '{"x":  1.50,"y":"C:\\\\new"}'
    assert redacted.attributes["c"] == "C:\\new"


@each_row(
    ("name", "value", "is_secret"),
    [
        ("password", "hunter22", True),
        ("db_password", "kurz", True),
        ("userPassword", "Sonnenblume", True),
        ("kennwort", "Sonnenblume", True),
        ("passwords", ["Sonnenblume"], True),
        ("x-api-key", "q8W3e9R2t7Y1", True),
        ("accessToken", "q8W3e9R2t7Y1", True),
        ("client_secret", "q8W3e9R2t7Y1", True),
        ("Authorization", "Token 9944b09199c62bcf", True),
        ("cookie", "sid=31d4d96e407aad42; theme=dark", True),
        ("pin", 4711, True),
        ("cvv", "123", True),
        ("password", "required", False),
        ("password", "Click Forgot password on the login page.", False),
        ("password_reset_url", "https://shop.example/1", False),
        ("forgotPassword", "step2", False),
        ("token", "arrived.", False),
        ("token", "Refunds", False),
        ("max_tokens", "4096", False),
        ("token_count", 40961234, False),
        ("secret", "Victoria", False),
        ("pincode", 560001, False),
        ("cookies", "We use 3 cookies on this site.", False),
        ("monkey", "q8W3e9R2t7Y1", False),
    ],
)
def test_a_secret_that_its_name_alone_tells(name: str, value: Any, is_secret: bool) -> None:
    """A text that is JSON is redacted by its values, so the name is no longer beside them."""
    redactor = Redactor(privacy(redact=["secret"]))
    gone = ["[secret]"] if isinstance(value, list) else "[secret]"
    wanted = gone if is_secret else value
    held = {"input.value": json.dumps({"a": [{name: value}]}), f"app.{name}": value}
    kept = redactor.span(span(**held), {}).attributes
    assert json.loads(str(kept["input.value"])) == {"a": [{name: wanted}]}
    assert kept[f"app.{name}"] == wanted
    item = {"name": f"APP_{name}", "value": value}
    kept = redactor.span(span(env=json.dumps([item])), {}).attributes
    assert json.loads(str(kept["env"])) == [{**item, "value": wanted}]
    given = trace(tags={name: str(value)}, passages=[{"id": "p", "metadata": {name: value}}])
    redacted = redactor.trace(given, {}).trace
    assert (redacted.passages or [])[0].metadata == {name: wanted}
    if not isinstance(value, list):
        assert redacted.tags == {name: str(wanted)}
    assert Redactor(privacy(redact=["email"])).span(span(**held), {}).attributes == held


@each_row(
    ("rule", "name", "value", "is_known"),
    [
        ("phone", "phone", "13812345678", True),
        ("phone", "phone", 13812345678, True),
        ("phone", "mobile", "0501234567", True),
        ("phone", "homePhone", "(415) 555-0132", True),
        ("phone", "fax_no", 4155550132, True),
        ("phone", "customer.telefon", "03012345", True),
        ("phone", "numbers", [13812345678], False),
        ("phone", "phone", ["13812345678"], True),
        ("phone", "smartphone", "12345678", False),
        ("phone", "cell", "1234567", False),
        ("phone", "phone", 911, False),
        ("phone", "phone_count", 12345678, False),
        ("phone", "mobile", True, False),
        ("phone", "phone", "call 12345678 please", False),
        ("device", "imei", "490154203237518", True),
        ("device", "imei_1", 490154203237518, True),
        ("device", "device.iccid", "8949020000012345678", True),
        ("device", "mac", "3c22fb1a9d07", True),
        ("device", "mac_address", "3C22FB1A9D07", True),
        ("device", "meid", "A0000009296F07", True),
        ("device", "mac", "applications", False),
        ("device", "stomach", "3c22fb1a9d07", False),
        ("device", "serial", "490154203237518", False),
        ("device", "imei_count", 12345678901234, False),
    ],
)
def test_a_number_that_its_name_alone_tells(
    rule: str, name: str, value: Any, is_known: bool
) -> None:
    redactor = Redactor(privacy(redact=[rule]))
    gone = [f"[{rule}]"] if isinstance(value, list) else f"[{rule}]"
    held = {"input.value": json.dumps({"a": [{name: value}]})}
    kept = redactor.span(span(**held), {}).attributes
    assert json.loads(str(kept["input.value"])) == {"a": [{name: gone if is_known else value}]}


def test_deep_nesting_is_dropped_and_no_crash() -> None:
    value: Any = MAIL
    for _ in range(200):
        value = [value]
    redacted = Redactor(privacy(redact=["email"])).span(span(a=value, b="[" * 100_000), {})
    assert MAIL not in repr(redacted)


def test_a_rule_that_runs_on_makes_the_field_missing() -> None:
    counts: Counts = {}
    # the trace's time is that of this thread: on a busy machine it would end in a sound rule
    redactor = Redactor(privacy(redact=["email", ENDLESS]), monotonic=time.thread_time)
    passages = [{"id": "p", "text": HOSTILE, "metadata": {"m": HOSTILE}}, {"id": "q", "text": "ok"}]
    given = trace(query="fine", answer=HOSTILE, passages=passages, error=HOSTILE, tags={"t": "x"})
    redacted = redactor.trace(given, counts)
    assert HOSTILE.encode() not in redacted.body
    assert redacted.trace.query == "fine"
    assert redacted.trace.missing == {"answer": "redaction_failed", "passages": "redaction_failed"}
    assert redacted.trace.error == "redaction_failed"
    failures = {key: n for key, n in counts.items() if "failures" in key[0]}
    assert sum(failures.values()) >= 3
    assert {dict(key[1])["rule"] for key in failures} == {"endless"}
    scores = score_cheap(PreparedTrace(redacted.trace))
    unscored = {score.metric: score.reason for score in scores if score.state == "unscored"}
    assert unscored["answered"] == unscored["empty_answer"] == "redaction_failed"


def test_names_of_events_are_texts_but_for_those_of_conventions() -> None:
    one = span(a="x")
    one.events = [
        SpanEvent(f"mail to {MAIL}"),
        SpanEvent("gen_ai.choice"),
        SpanEvent(f"gen_ai.{MAIL}"),
    ]
    redactor = Redactor(privacy(redact=["email"]))
    names = [event.name for event in redactor.span(one, {}).events]
    assert names[:2] == ["mail to [email]", "gen_ai.choice"]
    assert MAIL not in names[2]
    failing = Redactor(privacy(redact=[ENDLESS]))
    for name in ("gen_ai.evaluation.result", HOSTILE):
        log = LogEvent("0" * 32, "0" * 16, SpanEvent(name))
        kept = failing.log_event(log, {}).event.name
        assert kept == (HIDDEN if name == HOSTILE else name)


def test_a_text_of_a_span_that_cannot_be_redacted_says_that_it_is_hidden() -> None:
    redactor = Redactor(privacy(redact=[ENDLESS]))
    redacted = redactor.span(span(a=HOSTILE, b=[HOSTILE], c=json.dumps({"x": HOSTILE})), {})
    assert set(redacted.attributes.values()) == {HIDDEN}


def test_all_texts_of_a_trace_share_a_time() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    many = [{"id": str(n), "text": "nothing"} for n in range(50)]
    redacted = Redactor(privacy(redact=["email"]), clock).trace(trace(passages=many), {}).trace
    assert redacted.missing == {"passages": "redaction_failed"}


def test_a_failed_reload_leaves_the_old_rules_in_force() -> None:
    redactor = Redactor(privacy(redact=["email"]))
    bad = PrivacySettings.model_construct(
        redact=[*privacy(redact=["phone"]).redact, ENDLESS_BROKEN],
        drop_attributes=[],
    )
    with pytest.raises(ValueError, match="no pattern"):
        redactor.update(bad)
    assert redactor.text(MAIL, {}) == "[email]"
    redactor.update(privacy())
    assert redactor.text(MAIL, {}) == MAIL


ENDLESS_BROKEN = privacy(redact=[ENDLESS]).redact[0].model_copy(update={"pattern": "("})


@each_row(
    ("given", "words"),
    [
        ({"redact": [{"name": "x", "pattern": "("}]}, "no pattern"),
        ({"redact": ["passport"]}, "needs a pattern: the ready-made rules are email"),
        ({"redact": [{"name": "email", "fields": ["querry"]}]}, "'query'"),
        ({"redact": [{"name": "email", "fields": []}]}, "at least 1"),
        ({"redact": ["email", "email"]}, "each name once"),
        ({"redact": [{"name": "A b", "pattern": "x"}]}, "pattern"),
        ({"redact": [{"name": "x", "pattern": "x", "flags": 1}]}, "not permitted"),
        ({"drop_attributes": [""]}, "1 to 256"),
        ({"content": "some"}, "'full'"),
        ({"content": "hash"}, "hash_key"),
        ({"content": "hash", "hash_key_file": "/nowhere/key"}, "cannot be read"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        privacy(**given)
