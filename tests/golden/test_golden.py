"""Nothing moves by accident: hashes of what the bundled traces give."""

from __future__ import annotations

import json

from tests.golden import GOLDEN, exported, scored
from tests.golden.texts import GROUP, TEXTS, bundled, text_hashes

EXPECTED = json.loads(GOLDEN.read_text("utf-8"))


def test_the_scores_of_the_bundled_traces_stand() -> None:
    found = scored()
    assert {name: found.get(name) for name in EXPECTED["scored"]} == EXPECTED["scored"]
    assert found.keys() == EXPECTED["scored"].keys()


def test_what_is_exported_and_alerted_of_them_stands() -> None:
    found = json.loads(json.dumps(exported()))
    assert found["families"] == EXPECTED["families"]
    assert found["alerts"] == EXPECTED["alerts"]


def test_the_built_in_scores_of_all_bundled_texts_stand() -> None:
    expected = json.loads(TEXTS.read_text("utf-8"))
    assert GROUP * sum(map(len, expected.values())) > len(list(bundled())) > 3_000
    assert text_hashes() == expected
