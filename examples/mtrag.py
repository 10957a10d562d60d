"""Write `examples/mtrag.jsonl`: real traces of MTRAG and MTRAG-UN in the native schema.

    python -m examples.mtrag --data DIR --out examples/mtrag.jsonl

and beside it `mtrag-labels.jsonl`, what people said of its answers.

`DIR` holds `grounding_mtrag_human.jsonl.gz` and `abstention_mtrag_un.jsonl.gz`. Texts are copied
whole or not at all; `examples/NOTICE.md` says which traces are left out and why. Two things are
made up, because the sources have no clock: the timestamps and with them the order.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ragmeter.trace import Trace

__all__ = ["END", "SPAN", "convert", "doubtful", "main", "schedule"]

SETS = {
    "grounding_mtrag_human.jsonl.gz": "mtrag-chat",
    "abstention_mtrag_un.jsonl.gz": "mtrag-unanswerable",
}
END = datetime(2026, 1, 15, 12, tzinfo=UTC)
SPAN = timedelta(hours=1)  # the last trace is at END, so that the hour lies in the 1 h window
SEED = "ragmeter example 1"  # changes the order, nothing else

DOMAINS = {"clapnq": "wikipedia", "ibmcloud": "cloud", "govt": "government", "fiqa": "finance"}
MODELS = {
    # The publisher's long name would be a long label value.
    "reference (model draft repaired by a human annotator)": "Reference (repaired draft)",
}
# A page of a federal agency is a work of the United States government. Pages of states, counties
# and towns, which the set calls government too, may be under copyright.
FEDERAL = re.compile(
    r"Internal Revenue Service|Consumer Advice|Consumer Financial Protection Bureau"
    r"|Food and Nutrition Service|\bNASA\b|Veterans Affairs|\| CDC\b|Telehealth VA"
    r"|VA Home Loans|^FEMA:"
)
# JPL writes for NASA but is Caltech's, no agency.
CONTRACTOR = re.compile(r"\bJPL\b|Jet Propulsion Laborator|[@.]jpl\.|Space Place|Climate Kids")
# Every e-mail address counts as a person's but for these, of an office or of nobody.
PERSON = re.compile(
    r"\b(?!(?:phishing|dataloss)@irs\.gov|PowerVSMigration@|[\w.-]+@(?:example|domain)\.)"
    r"(?<![.-])[\w.-]+@[A-Za-z]"
)


def domain(row: dict[str, Any]) -> str:
    """The corpus of a row, without the publisher's prefixes and suffixes."""
    collection: str = row["meta"]["collection"]
    for name, words in DOMAINS.items():
        if name in collection:
            return words
    raise ValueError(f"{row['trace_id']}: unknown collection {collection!r}")


def doubtful(row: dict[str, Any]) -> str | None:
    """Why a row may not be passed on, or None if it may."""
    if domain(row) == "finance":
        return "finance: the terms of FiQA's texts are contradictory"
    texts = [*(p["text"] for p in row["passages"]), row["query"], row["answer"]]
    texts += [message["text"] for message in row.get("history", [])]
    if any(PERSON.search(text) for text in texts):
        return "holds the address of a person"
    if domain(row) == "government":
        for passage in row["passages"]:
            title = passage.get("title", "")
            if not FEDERAL.search(title) or CONTRACTOR.search(title + passage["text"]):
                return "government: a page of no federal agency"
    return None


def convert(row: dict[str, Any], service: str, timestamp: datetime) -> dict[str, Any]:
    """A row of the data folder as a native trace; what it does not have is not written."""
    labels = row["labels"]
    tags = {"domain": domain(row), "answerability": labels["answerability"].lower()}
    if "hallucinated" in labels["normalized"]:
        verdict = {False: "yes", True: "no", None: "unknown"}
        tags["human_faithful"] = verdict[labels["normalized"]["hallucinated"]]
    trace: dict[str, Any] = {
        "trace_id": row["trace_id"],
        "service": service,
        "timestamp": timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "query": row["query"],
    }
    if row.get("history"):
        trace["history"] = row["history"]
    trace["passages"] = [_passage(passage) for passage in row["passages"]]
    trace["answer"] = row["answer"]
    trace["model"] = MODELS.get(row["model"], row["model"])
    trace["tags"] = tags
    return trace


def label(trace: dict[str, Any]) -> dict[str, Any] | None:
    """What people said of an answer, as feedback; all answers of that set were judged."""
    verdict = {"yes": True, "no": False}.get(trace["tags"].get("human_faithful"))
    if verdict is None:
        return None
    return {
        "trace_id": trace["trace_id"],
        "service": trace["service"],
        "timestamp": END.isoformat().replace("+00:00", "Z"),
        "scorer": "people",
        "probability": 1,
        "verdict": {"grounded": verdict},
    }


def _passage(row: dict[str, Any]) -> dict[str, Any]:
    passage = {key: row[key] for key in ("id", "text", "rank")}
    if row.get("title"):
        passage["metadata"] = {"title": row["title"].strip()}
    return passage


def schedule(trace_ids: Iterable[str]) -> dict[str, datetime]:
    """Evenly spaced instants in (END - SPAN, END], in an order that a seeded hash decides.

    The sources list one model or one set after the other; hashed order mixes them, so that every
    window sees all of them.
    """
    order = sorted(trace_ids, key=lambda name: hashlib.sha256(f"{SEED}\0{name}".encode()).digest())
    return {name: END - SPAN + SPAN * (i + 1) / len(order) for i, name in enumerate(order)}


def read(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(service, row) of both sets."""
    for name, service in SETS.items():
        with gzip.open(folder / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield service, json.loads(line)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Convert the MTRAG sets to native traces.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the two .jsonl.gz")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines to write")
    options = parser.parse_args(arguments)
    rows: dict[str, tuple[str, dict[str, Any]]] = {}
    left_out: dict[str, int] = {}
    for service, row in read(options.data):
        if reason := doubtful(row):
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            rows[row["trace_id"]] = (service, row)
    traces = [
        convert(rows[trace_id][1], rows[trace_id][0], timestamp)
        for trace_id, timestamp in schedule(rows).items()
    ]
    for trace in traces:
        Trace.model_validate(trace)
    labels = [one for one in map(label, traces) if one is not None]
    for path, lines in (
        (options.out, traces),
        (options.out.with_name(f"{options.out.stem}-labels.jsonl"), labels),
    ):
        path.write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
            encoding="utf-8",
        )
    print(f"{len(traces)} traces, {options.out.stat().st_size} bytes: {options.out}")
    for reason, number in sorted(left_out.items()):
        print(f"left out {number}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
