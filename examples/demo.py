"""`make run`: a day of a service that ends now, replayed with a recorded judge. No network, no key.

    python -m examples.demo [--exit-after-replay]

The texts are real (`mtrag.jsonl`, NOTICE.md). Staged by this script, with the seed below: how many
requests come and when, which question each of them asks, latency, tokens, cost, which passage a
sentence cites, and both incidents: for the last five hours the answers that people had edited are
replaced by those of Llama 3.1, for the last half hour requests fail. What ragmeter makes of it is
computed, by the way of every trace.

The judge is recorded: an HTTP server on loopback that answers from `recorded-verdicts.jsonl`, and
refuses what was not recorded. Its name, `recorded-verdicts`, says so wherever it is shown.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ragmeter.metrics.sentences import find_sentence_spans

__all__ = ["JUDGE", "OUTAGE", "SERVICE", "SWAP", "RecordedJudge", "labels", "stage"]

HERE = Path(__file__).parent
SOURCE = HERE / "mtrag.jsonl"
VERDICTS = HERE / "recorded-verdicts.jsonl"
FOLDER = Path(".ragmeter")  # what a run writes; demo.yaml has the state file there

SEED = "ragmeter demo 1"
SERVICE = "help-desk"
JUDGE = "recorded-verdicts"
DAY = timedelta(days=1)
SWAP, OUTAGE = timedelta(hours=5), timedelta(minutes=30)  # before the end
EDITED, RAW = "edited-by-people", "Llama 3.1 (405B)"
MODELS = {"Reference": EDITED, RAW: RAW}  # of the source
A_DAY = ((19, 45), (23, 100), (24, 300))
"""Requests an hour until so many hours after the beginning: the last hour is the busiest, so that
the five minutes of the fastest rules hold enough of them."""
FAILING, LATE = 0.25, 0.15  # of the requests in the outage: errors, and timeouts after 30 s
LABELLED = 0.1  # of the answers are shown to people
PRICES = (0.5e-6, 1.5e-6)  # USD for a token in and out, four characters each

_WORD = re.compile(r"[^\W_]{4,}")
_BLOCK = re.compile(
    r"\[\[BEGIN ([a-z]+)(?: \d+)? (\w+)\]\]\n(.*?)\n\[\[END \1(?: \d+)? \2\]\]", re.S
)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _cite(answer: str, passages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cite after the fact: each sentence the passage that has most of its words.

    It has at least four words, and the passage at least half of them.
    """
    found = []
    theirs = [(passage["id"], _words(passage["text"])) for passage in passages]
    for start, end in find_sentence_spans(answer):
        own = _words(answer[start:end])
        name, held = max(theirs, key=lambda one: len(own & one[1]), default=("", set[str]()))
        if len(own) >= 4 and 2 * len(own & held) >= len(own):
            found.append({"start": start, "end": end, "passage_ids": [name]})
    return found


def _answers() -> list[dict[str, dict[str, Any]]]:
    """The traces of each question by model."""
    by_question: dict[str, dict[str, dict[str, Any]]] = {}
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        trace = json.loads(line)
        if trace["service"] == "mtrag-chat" and (model := MODELS.get(trace["model"])):
            trace["citations"] = _cite(trace["answer"], trace["passages"])
            by_question.setdefault(trace["trace_id"].rpartition(":")[0], {})[model] = trace
    return [by_question[name] for name in sorted(by_question)]


def stage(end: datetime) -> Iterator[dict[str, Any]]:
    """The traces of the day before `end`, in order of time."""
    rng = random.Random(SEED)
    questions = _answers()
    at = end - DAY
    number = 0
    while True:
        hours = (at - end + DAY) / timedelta(hours=1)
        rate = next(rate for until, rate in A_DAY if hours < until)
        at += timedelta(hours=rng.expovariate(rate))
        if at >= end:
            return
        number += 1
        yield _request(rng, questions, at, end - at) | {"trace_id": f"demo-{number:04d}"}


def _request(
    rng: random.Random, questions: list[dict[str, dict[str, Any]]], at: datetime, left: timedelta
) -> dict[str, Any]:
    """A request at a time, so long before the end."""
    model = RAW if left <= SWAP else EDITED
    source = rng.choice(questions)[model]
    chance = rng.random()
    seconds = rng.lognormvariate(math.log(1.6), 0.4)
    status = "ok"
    if left <= OUTAGE and chance < FAILING + LATE:
        status = "error" if chance < FAILING else "timeout"
        seconds = 30.0 if status == "timeout" else 0.2
    retrieval = min(seconds, rng.lognormvariate(math.log(0.12), 0.3))
    trace = {
        **source,
        "service": SERVICE,
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "model": model,
        "status": status,
        "timings": {
            "total": round(seconds, 3),
            "retrieval": round(retrieval, 3),
            "generation": round(seconds - retrieval, 3),
        },
        "tags": {**source["tags"], "answer_of": source["trace_id"]},
    }
    if status == "ok":
        asked = sum(len(one["text"]) for one in source["passages"]) + len(source["query"])
        tokens = (asked // 4, len(source["answer"]) // 4)
        cost = sum(n * price for n, price in zip(tokens, PRICES, strict=True))
        trace["usage"] = {
            "input_tokens": tokens[0],
            "output_tokens": tokens[1],
            "cost_usd": round(cost, 7),
        }
    else:
        del trace["answer"], trace["citations"]
        trace["error"] = "upstream unavailable" if status == "error" else "no answer in 30 s"
    return trace


def labels(traces: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What people said of these answers, of one trace in ten, drawn at random."""
    rng = random.Random(f"{SEED} labels")
    for trace in traces:
        if rng.random() < LABELLED and trace["status"] == "ok":
            yield {
                "trace_id": trace["trace_id"],
                "service": SERVICE,
                "timestamp": trace["timestamp"],
                "scorer": "people",
                "probability": LABELLED,
                "verdict": {"grounded": trace["tags"]["human_faithful"] == "yes"},
            }


def _key(blocks: Sequence[tuple[str, str]]) -> str:
    """A question by its texts alone, so that the wording around them may change."""
    texts = [[kind, *_WORD.findall(text), *re.findall(r"\d+", text)] for kind, text in blocks]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:20]


class RecordedJudge(ThreadingHTTPServer):
    """Answers questions that were asked before, in the protocol of a chat API."""

    daemon_threads = True

    def __init__(self) -> None:
        rows = [json.loads(line) for line in VERDICTS.read_text(encoding="utf-8").splitlines()]
        self.replies = {row["key"]: row["reply"] for row in rows}
        self.missing: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, user: str) -> dict[str, str] | None:
        """The recorded reply to a message."""
        reply = self.replies.get(_key([(kind, text) for kind, _, text in _BLOCK.findall(user)]))
        if reply is None:
            self.missing.append(user)
        return reply


class _Handler(BaseHTTPRequestHandler):
    server: RecordedJudge
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"]
        reply = self.server.answer(asked[-1]["content"])
        if reply is None:
            self._send(404, {"error": {"message": "this question was not recorded"}})
            return
        content = json.dumps(reply)
        used = sum(len(message["content"]) for message in asked) // 4, len(content) // 4
        self._send(
            200,
            {
                "id": "recorded",
                "object": "chat.completion",
                "model": JUDGE,
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": content},
                    }
                ],
                "usage": {"prompt_tokens": used[0], "completion_tokens": used[1]},
            },
        )

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


STORY = """\
A day of a help desk, replayed: {number:,} requests. Questions, passages and answers are real
(examples/NOTICE.md). Staged: who asks when, latency, cost, citations, and two incidents. At
{swap:%H:%M} UTC a model's own answers take the place of edited ones; at {outage:%H:%M} requests begin to fail.
The judge is recorded: {judge} is a file that a language model wrote once; none is asked.
"""  # noqa: E501


def main(arguments: Sequence[str]) -> None:
    from ragmeter.cli.main import app

    FOLDER.mkdir(exist_ok=True)
    end = datetime.now(UTC)
    day = list(stage(end))
    for name, rows in (("traces", day), ("labels", list(labels(day)))):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (FOLDER / f"demo-{name}.jsonl").write_text(text, encoding="utf-8")
    sys.stderr.write(
        STORY.format(number=len(day), swap=end - SWAP, outage=end - OUTAGE, judge=JUDGE)
    )
    judge = RecordedJudge()
    threading.Thread(target=judge.serve_forever, daemon=True).start()
    os.environ["RAGMETER_JUDGE__BASE_URL"] = judge.base_url
    app(
        [
            "run",
            "--fresh",
            "--config",
            str(HERE / "demo.yaml"),
            "--replay",
            str(FOLDER / "demo-traces.jsonl"),
            "--feedback",
            str(FOLDER / "demo-labels.jsonl"),
            *arguments,
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
