"""What the ready-made rules find, what they leave, and that no text makes them run on."""

from __future__ import annotations

import itertools
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.files import parse_yaml
from ragmeter.core.redaction_rules import BUILTIN_RULES, RedactionRule
from ragmeter.ingest.redaction import Redactor
from ragmeter.scorers.llm.dialect import clean_text

from tests.tables import each_row

CASES: dict[str, list[dict[str, Any]]] = parse_yaml(
    Path(__file__).with_name("redaction_cases.yaml").read_text("utf-8")
)


def found(name: str, text: str) -> list[str]:
    return [text[start:end] for start, end in RedactionRule(name, None, None, 5.0).spans(text)]


@each_row(
    ("name", "text", "wanted"),
    [
        ("email", "to a.b+c@ex-ample.co.uk, <x@y.de>, x@y", ["a.b+c@ex-ample.co.uk", "x@y.de"]),
        ("email", "o'neil@example.com müller@bücher.example", None),
        ("email", "x" * 300 + "@example.com", ["x" * 64 + "@example.com"]),
        ("phone", "+49 170 1234567 or 0049-170-1234567", ["+49 170 1234567", "0049-170-1234567"]),
        ("phone", "(030) 123 45678, 555-123-4567", ["(030) 123 45678", "555-123-4567"]),
        ("phone", "on 2024-10-12 at 192.168.10.12, id 1700000000, 10 000 000 rows", []),
        ("iban", "DE89 3704 0044 0532 0130 00 please", ["DE89 3704 0044 0532 0130 00"]),
        ("iban", "GB82WEST12345698765432 DE89370400440532013000", None),
        ("iban", "DE00 3704 0044 0532 0130 00, AB12CD34EF56GH78", []),
        ("credit_card", "4111 1111 1111 1111 12/26", ["4111 1111 1111 1111"]),
        ("credit_card", "2 4111111111111111 5500-0000-0000-0004", None),
        ("credit_card", "4111 1111 1111 1112, span 1700000000123456789", []),
        ("ip", "192.168.1.1, v1.2.3, 999.1.1.1", ["192.168.1.1"]),
        ("ip", "fe80::1: 2001:db8::8a2e:370:7334. ::ffff:1.2.3.4.", None),
        ("ip", "12:30:45 a::b std::vector, x = d[1:2:3]", []),
        ("secret", "Authorization: Bearer abc.def.ghi", ["Bearer abc.def.ghi"]),
        ("secret", "eyJhbGciOi.eyJzdWIiOiIx.SflK sk-proj-abcdefghijklmnop", None),
        ("secret", 'password: "hunter2222", AKIAIOSFODNN7EXAMPLE', None),
        ("secret", "reset your password: open Settings", []),
        ("secret", "-----BEGIN RSA PRIVATE KEY-----\nMII-x\n-----END RSA PRIVATE KEY-----.", None),
        ("secret", "-----BEGIN PRIVATE KEY-----\nMIIcut off", None),
    ],
)
def test_what_is_found(name: str, text: str, wanted: list[str] | None) -> None:
    if wanted is None:  # all of it, but for separators
        left = text
        for piece in found(name, text):
            left = left.replace(piece, "", 1)
        assert left.strip(" .:,2\"'") in ("", 'password: "')
    else:
        assert found(name, text) == wanted


def test_findings_of_several_patterns_are_joined() -> None:
    text = "token=sk-proj-abcdefghijklmnop, Bearer eyJhbGciOi.eyJzdWIiOiIx"
    assert found("secret", text) == [
        "token=sk-proj-abcdefghijklmnop",
        "Bearer eyJhbGciOi.eyJzdWIiOiIx",
    ]


def test_the_next_finding_is_not_swallowed_by_a_candidate() -> None:
    text = "4111 1111 1111 1111 4111 1111 1111 1111"
    assert found("credit_card", text) == ["4111 1111 1111 1111"] * 2


@each_row(
    "case",
    [case for cases in CASES.values() for case in cases],
    ids=[f"{rule}: {case['form']}" for rule, cases in CASES.items() for case in cases],
)
@each_row("backwards", [False, True])
def test_forms_that_are_recognised_and_that_are_not(case: dict[str, Any], backwards: bool) -> None:
    found = redactor_of_all(backwards).text(case["text"], {})
    assert found == case.get("becomes", case["text"])


@cache
def redactor_of_all(backwards: bool) -> Redactor:
    """All rules, in their order or the other one. Time is of this thread: a busy machine makes no
    search time out."""
    names = list(reversed(BUILTIN_RULES)) if backwards else list(BUILTIN_RULES)
    return Redactor(PrivacySettings.model_validate({"redact": names}), monotonic=time.thread_time)


@each_row("rule", CASES)
def test_a_form_that_is_cleaned_later_is_redacted_before(rule: str) -> None:
    """What the judge gets of a recognised form is what redaction has left of it."""
    rules = {"redact": list(BUILTIN_RULES)}
    redactor = Redactor(PrivacySettings.model_validate(rules), monotonic=time.thread_time)
    for case in CASES[rule]:
        redacted = redactor.text(case["text"], {})
        assert redacted is not None
        assert redactor.text(clean_text(redacted), {}) == clean_text(redacted)


def test_no_separator_of_a_card_number_gets_through() -> None:
    rules = {"redact": list(BUILTIN_RULES)}
    redactor = Redactor(PrivacySettings.model_validate(rules), monotonic=time.thread_time)
    blanks = (
        "\u00a0\u1680\u2000\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
    )
    hidden = "\u200b\u200c\u200d\u200e\u2060\u2063\u00ad\u034f\u180e\ufe0f\ufeff\u3164\x01\x7f"
    for one, two in itertools.product(blanks + hidden + " -", repeat=2):
        text = f"a 4111{one}1111{two}1111{one}1111 b"
        assert redactor.text(text, {}) == "a [credit_card] b", repr(text)


HOSTILE = (
    "a@",
    "1 ",
    "+1",
    "A1",
    "DE89 ",
    "4",
    "4 ",
    ":",
    "a:",
    "1.",
    "eyJ",
    "(",
    "@",
    "a@a.",
    "-",
    "-----BEGIN PRIVATE KEY-----",
    "bearer ",
    "password:",
    "sk-",
    "AC0123456789abcdef0123456789abcdef",
    "x_live_",
    "M0",
    "$6$",
    "\\",
    "\n",
    "٣",
    "é",
    "::1.",
)


@pytest.mark.parametrize("name", BUILTIN_RULES)
def test_time_grows_with_the_text_and_not_faster(name: str) -> None:
    rule = RedactionRule(name, None, None, 60.0)

    def worst(size: int) -> float:
        times = []
        for piece in HOSTILE:
            text = piece * (size // len(piece))
            start = time.process_time()
            rule.spans(text)
            times.append(time.process_time() - start)
        return max(times)

    # 8 times the text: quadratic would be 64 times the time, also when it is measured again
    measured = []
    for _ in range(3):
        small, large = worst(4_000), worst(32_000)
        measured.append((small, large))
        if large < max(24 * small, 0.05):
            return
    pytest.fail(f"seconds of both sizes: {measured}")


def test_of_overlapping_findings_all_is_replaced() -> None:
    """A key of a known form ends within the secret that holds it."""
    secret = "password=AKIAIOSFODNN7EXAMPLE-and-the-rest-of-it"
    assert found("secret", f"the {secret}, please") == [secret]
