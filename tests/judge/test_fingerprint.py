from __future__ import annotations

import pytest

from agent.judge.fingerprint import Served, fingerprint

SERVED = Served("m", "fp")


def test_it_is_stable() -> None:
    """Stored fingerprints must still be found: another value here is another protocol."""
    mark = fingerprint(SERVED, "hash", {"model": "m", "temperature": 0, "seed": 42}, "schema")
    assert mark == "ff520946d47c"


def test_the_order_of_parameters_makes_no_difference() -> None:
    one = fingerprint(SERVED, "hash", {"a": 1, "b": 2}, "schema")
    assert fingerprint(SERVED, "hash", {"b": 2, "a": 1}, "schema") == one


def test_parts_do_not_run_into_each_other() -> None:
    assert fingerprint(Served("a", "b"), "c", {}, "d") != fingerprint(
        Served("ab", ""), "c", {}, "d"
    )


def test_another_version_of_the_code_is_another_instrument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = fingerprint(SERVED, "hash", {}, "schema")
    monkeypatch.setattr("agent.judge.fingerprint.JUDGE_PROTOCOL", 99)
    assert fingerprint(SERVED, "hash", {}, "schema") != one
