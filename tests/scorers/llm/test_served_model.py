from __future__ import annotations

import pytest
from ragmeter.scorers.llm.served_model import ServedModel, judge_fingerprint

SERVED = ServedModel("m", "fp")


def test_it_is_stable() -> None:
    """Stored fingerprints must still be found: another value here is another protocol."""
    mark = judge_fingerprint(SERVED, "hash", {"model": "m", "temperature": 0, "seed": 42}, "schema")
    assert mark == "da9c946929a4"


def test_the_order_of_parameters_makes_no_difference() -> None:
    one = judge_fingerprint(SERVED, "hash", {"a": 1, "b": 2}, "schema")
    assert judge_fingerprint(SERVED, "hash", {"b": 2, "a": 1}, "schema") == one


def test_parts_do_not_run_into_each_other() -> None:
    assert judge_fingerprint(ServedModel("a", "b"), "c", {}, "d") != judge_fingerprint(
        ServedModel("ab", ""), "c", {}, "d"
    )


def test_another_version_of_the_code_is_another_instrument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = judge_fingerprint(SERVED, "hash", {}, "schema")
    monkeypatch.setattr("ragmeter.scorers.llm.served_model.JUDGE_PROTOCOL", 99)
    assert judge_fingerprint(SERVED, "hash", {}, "schema") != one
