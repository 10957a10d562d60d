"""What people read has no phrase that a reader on call stumbled over."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.tables import each_row

ROOT = Path(__file__).parents[1]

# Product texts, runbooks, documents and what is deployed; not what others wrote.
FOLDERS = ("agent", "exporters", "deploy", "helm", "docs")
SUFFIXES = (".py", ".yaml", ".yml", ".md", ".html", ".json", ".tmpl", ".tpl")

# By phrase what is said instead.
PHRASES = {
    r"even the (?:upper|lower) end": "95 % sure",
    r"true since .* firing since": "began, alerting since",
    r"announced with it": "same incident",
    r"by chance at most once in|by chance expected of": "false alarm at most every N days",
    r"the condition cannot be judged": "no traffic, last known value",
    r"more of the same cause:": "also:",
    r"resolved lately": "recently resolved",
    r"mostly a shift of shares": "because traffic moved from X to Y",
    r"moved unlike the rest": "changed more than the others",
    r"the rhythm (?:of day and week )?is not known": "less than a day of history",
    r"of the events were bad": "of requests failed",
    r"\b1 times too fast": "at the limit",
    r"which segment moved a mean": "where it changed",
    r"adds to the mean": "effect on the total",
    r"how well scorers agree with you": "automatic scores against your labels",
    r"loads anew every": "refreshes every",
    r"\d+ of \d+ worst": "19th worst",
    r"next, less bad": "next",
    r"windows read:": "",
    r"none waits any more": "all scored",
    r"traces wait for the (?:model|judge)": "scoring: N left",
    r"left of the sampling rate": "effective sampling rate",
    r"of all that, for canaries": "canary share",
    r"lost to kafka's retention": "expired in Kafka before reading",
}


@cache
def texts() -> list[tuple[Path, str]]:
    return [
        (path.relative_to(ROOT), " ".join(path.read_text("utf-8").split()))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and path.stat().st_size < 1_000_000
    ]


@each_row("phrase", PHRASES)
def test_a_phrase_that_readers_stumbled_over_is_gone(phrase: str) -> None:
    wanted = re.compile(phrase, re.IGNORECASE)
    found = [
        f"{path}: {match.group()}, better: {PHRASES[phrase]}"
        for path, text in texts()
        for match in wanted.finditer(text)
    ]
    assert found == []
