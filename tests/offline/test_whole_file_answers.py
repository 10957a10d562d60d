"""`ragmeter score`: the answers of a file compared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ragmeter.config.loader import load_settings
from ragmeter.offline.scoring import ScoringSummary, score_file

from tests.scorers.llm.stub_embedding_server import Stub, stub_embeddings
from tests.traces import START, trace_line

ANSWERS = ("Zebras sleep standing.", "Standing is how zebras sleep.", "No idea.")
# cosines of the pairs: 4/5, 0, 3/5
VECTORS = {ANSWERS[0]: [1.0, 0.0], ANSWERS[1]: [4.0, 3.0], ANSWERS[2]: [0.0, 1.0]}


def scored(folder: Path, stub: Stub | None = None, more: int = 0, **changes: Any) -> ScoringSummary:
    """Six questions, each answered three times, and the first some times more."""
    path = folder / "traces.jsonl"
    rows = [
        trace_line(10 * question + at, query=f"Quixotic question {question}?", answer=answer,
                   timestamp=START + at)
        for at, answer in enumerate(ANSWERS)
        for question in range(6)
    ]  # fmt: skip
    rows += [
        trace_line(100 + at, query="Quixotic question 0?", answer="No idea.", timestamp=START + at)
        for at in range(more)
    ]
    path.write_bytes(b"\n".join(rows))
    embeddings = {"base_url": stub.base_url, "model": "m", "retries": 0} if stub else {}
    settings = load_settings(
        environ={}, overrides={"consistency": {"embeddings": embeddings}, **changes}
    )
    output = folder / "scores.jsonl"
    done = asyncio.run(score_file(path, output, "jsonl", settings, print))
    assert done.traces == 18 + more
    return done


def table() -> dict[str, list[float]]:
    return {**VECTORS, **{f"Quixotic question {n}?": [1.0, n - 2.6] for n in range(6)}}


def test_by_words_without_anything_configured(tmp_path: Path) -> None:
    done = scored(tmp_path)
    names = [line.split()[1] for line in done.summary_lines()]
    assert names == ["consistency_rouge1", "consistency_rouge2", "consistency_rouge_l"]
    # ROUGE-1 of the pairs: 3 words in common of 3 and 5, none, none
    mean = (2 * 3 / 8) / 3
    assert done.summary_lines()[0].startswith(f"bot: consistency_rouge1 {mean:.3f} (")
    assert done.summary_lines()[0].endswith("6 questions asked again")


def test_by_meaning(tmp_path: Path) -> None:
    with stub_embeddings(**table()) as stub:
        done = scored(tmp_path, stub)
        line = done.summary_lines()[-1]
        assert line.startswith("bot: consistency_embedding ")
        assert float(line.split()[2]) == pytest.approx((0.8 + 0 + 0.6) / 3, abs=0.002)
        assert "variance 0.115" in line  # of 0.8, 0 and 0.6, by hand
        assert done.failed_tiers == []
        assert len(stub.bodies) == 18


def test_only_what_is_remembered_is_embedded(tmp_path: Path) -> None:
    with stub_embeddings(**table()) as stub:
        scored(tmp_path, stub, more=5)
        assert len(stub.bodies) == 19, "four answers of a question within a minute"


def test_a_server_that_lies_is_counted_and_fails_the_command(tmp_path: Path) -> None:
    with stub_embeddings() as stub:
        stub.fault = "nan"
        done = scored(tmp_path, stub)
        assert done.summary_lines()[-1] == "embedding: 18 of 18 results unscored (malformed 18)"
        assert done.failed_tiers == ["embedding"]
        assert not any("consistency_embedding" in line for line in done.summary_lines())


@pytest.mark.parametrize(
    "changes", [{"privacy": {"content": "none"}}, {"limits": {"min_samples": 7}}]
)
def test_nothing_is_said_where_there_is_nothing_to_say(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert scored(tmp_path, **changes).summary_lines() == []
