"""What is kept of a trace under each setting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.evidence import encode_evidence
from ragmeter.config.inputs import PrivacySettings
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.metrics.claims import JudgedClaim
from ragmeter.scorers.judge.claims import ClaimsVerdict, claims_detail
from ragmeter.scorers.judge.facts import JudgedFact, facts_detail
from ragmeter.scorers.judge.nuggets import NuggetFindings, nuggets_detail
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

from tests.metrics.help import KB
from tests.tables import each_row

WORDS = ("reset", "Gandalf", "hobbit", "tenant-7", "1954", "ancient", "Rivendell", "boom")
TRACE = Trace.model_validate(
    {
        "trace_id": "t-1",
        "service": "s",
        "timestamp": 0,
        "query": "How do I reset it?",
        "history": [{"role": "user", "text": "a hobbit"}],
        "passages": [
            *KB,
            {
                "id": "kb-9",
                "text": "ancient lore",
                "score": 0.5,
                "metadata": {"place": "Rivendell"},
            },
        ],
        "answer": "Ask Gandalf in Rivendell, who settled this in 1954 for 77 hobbits [2]. Yes.",
        "error": "boom",
        "tags": {"tenant": "tenant-7"},
        "model": "gpt",
        "timings": {"total": 1.5},
        "citations": [{"start": 0, "end": 3, "passage_ids": ["kb-1"]}],
    }
)


def document() -> dict[str, Any]:
    scored = Scorer().score(TRACE).trace
    nuggets = NuggetFindings(["a fact of Rivendell"], ["vital"], ["support"])
    results = [replace(scored.results[0], detail=nuggets_detail(nuggets)), *scored.results[1:]]
    document: dict[str, Any] = json.loads(
        encode_evidence(TRACE, scored._replace(results=results), 10**6)
    )
    return document


def content(mode: str, key: str = "k") -> ContentPolicy:
    return ContentPolicy(PrivacySettings.model_validate({"content": mode, "hash_key": key}))


def test_full_is_all_of_it() -> None:
    kept = document()
    assert ContentPolicy().document(kept) is kept
    assert all(word in json.dumps(kept) for word in WORDS if word != "tenant-7")


@pytest.mark.parametrize("mode", ["none", "hash"])
def test_claims_and_facts_go_the_way_of_the_texts(mode: str) -> None:
    claim = JudgedClaim("a claim of Rivendell", supported=False, relevant=False)
    details = [
        claims_detail(ClaimsVerdict([claim], 0, 0)),
        facts_detail([JudgedFact("a fact of Rivendell", used=False)]),
    ]
    before = [{"metric": "m", "detail": detail} for detail in details]
    after = content(mode).results(before)
    assert "Rivendell" not in json.dumps(after)
    assert [
        item["detail"]["unused" if "unused" in item["detail"] else "unsupported"] for item in after
    ] == [1, 1]


@pytest.mark.parametrize("mode", ["none", "hash"])
def test_no_word_is_left(mode: str) -> None:
    before = document()
    kept = content(mode).document(before)
    text = json.dumps(kept)
    assert [word for word in WORDS if word in text] == []
    trace = kept["trace"]
    assert (trace["trace_id"], trace["model"], trace["timings"]) == ("t-1", "gpt", {"total": 1.5})
    assert [one["id"] for one in trace["passages"]] == ["kb-1", "kb-2", "kb-3", "kb-9"]
    assert trace["passages"][3]["score"] == 0.5
    assert trace["not_kept"]["query"]["characters"] == len(TRACE.query or "")
    assert ("blake2b" in trace["not_kept"]["query"]) == (mode == "hash")
    strip = [{k: v for k, v in item.items() if k != "detail"} for item in before["results"]]
    assert [{k: v for k, v in item.items() if k != "detail"} for item in kept["results"]] == strip
    grounding = next(item for item in kept["results"] if item["metric"] == "grounding")
    worst = grounding["detail"]["worst_sentence"]
    assert isinstance(worst["support"], float)
    assert worst["passage_id"] in {None, "kb-1", "kb-2", "kb-3", "kb-9"}
    assert content(mode).document(kept) == kept


def test_a_hash_tells_the_same_text_and_needs_the_key() -> None:
    one, other = content("hash"), content("hash", "another")
    assert one.text("yes") == content("hash").text("yes") != one.text("no")
    assert one.text("yes") != other.text("yes")
    assert content("hash", "k" * 100).text("a") != content("hash", "k" * 101).text("a")


def test_the_key_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("k\n")
    kept = ContentPolicy(
        PrivacySettings.model_validate({"content": "hash", "hash_key_file": str(file)})
    )
    assert kept.text("yes") == content("hash").text("yes")


@each_row(
    ("before", "now", "stricter"),
    [
        ("full", "none", True),
        ("full", "hash", True),
        ("hash", "none", True),
        ("none", "none", False),
        ("none", "full", False),
        ("hash", "full", False),
        ("", "none", True),
    ],
)
def test_what_was_kept_before_a_stricter_setting_must_go(
    before: str, now: str, stricter: bool
) -> None:
    assert content(now).changed(before) == stricter
