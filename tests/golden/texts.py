"""What the built-in scorers give for all bundled texts, as hashes: values, reasons and details.

The texts are the answers with labels, the example, the probes, the injections and every form of
citation, each as it is and changed: numbers in other notations, Markdown and HTML, other
characters, citations, refusals, other languages, records and bare noise. All of it is drawn from
fixed seeds.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ragmeter.core.files import parse_yaml
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.trace import Trace

__all__ = ["GROUP", "TEXTS", "bundled", "text_hashes", "text_scores"]

ROOT = Path(__file__).parents[2]
TEXTS = Path(__file__).with_name("texts.json")
DATA = ROOT / "tests" / "data"
GROUP = 20  # traces with one hash
Row = dict[str, Any]

REFUSALS = (
    "I'm sorry, but the provided passages do not mention this. ",
    "I don't know. ",
    "Based on the context, there is no information about that. However, it is likely. ",
    "Es tut mir leid, dazu liegen mir keine Informationen vor. ",
    "Could you please clarify what you mean?",
    "Sure! Here is a summary of the article in 100 words:\n",
    "Lo siento, no tengo información sobre eso. ",
)
FOREIGN = (
    "Die Rechnung wird am fünften Tag des Monats per E-Mail versandt und ist dann zu zahlen.",
    "Le remboursement est effectué dans les quatorze jours après la réception du colis.",
    "用VPN连接14天后，系统会自动断开。请在设置中重新登录。",
    "Сброс пароля выполняется в настройках, если вы забыли пароль от учётной записи.",
    "パスワードを再設定するには、設定を開いてください。",
)
RECORD = (
    '{"name": "Cafe %d", "attributes": {"OutdoorSeating": true, "WiFi": "no", "GarageParking": '
    'false, "ValetParking": null, "HappyHour": true}, "hours": {"Monday": "9:0-17:30", "Tuesday": '
    '"9:0-17:30", "Saturday": "10:0-22:0"}, "stars": 3.5, "review_count": %d}'
)
RECORD_CLAIMS = (
    "It has outdoor seating and free WiFi.",
    "There is no garage parking, valet or happy hour.",
    "It is open from 9 am to 5:30 pm on weekdays and until 10 PM on Saturday.",
    "They offer parking, but not outdoor seating.",
)
MARKS = (
    " [1]",
    " [2, 3]",
    "[^1]",
    " 【1†source】",
    " (Source: 2)",
    " [[1]](https://kb.example/a)",
    "¹",
    " <sup>2</sup>",
    " \\[1\\]",
    " \\cite{1}",
    " [doc 2]",
    " (p. 3)",
    " (Smith et al., 2020)",
    " [1-3]",
    " arr[1]",
    " ^1^",
    " [x]",
    " [manual.pdf]",
)
NOISE = (
    "aA1.!?。！？\n \t\"'”’)]】[【xDr Mr. e.g U.S é_Ⅷ\x85\0"
    "|<>&;#*`~\\^(){}$€%,:-–—'½²①ﬁ\u00ad\u200b日本ไทย٣İẞſ½µ"
)
# What has a meaning of its own in a text: notations, markup, markers, negations, other scripts.
VOCABULARY = (
    "the not never no 7 twelve 1,000 1000 5:30 pm 17:30 Monday Nigeria Nigerian explain mention "
    "May $5.2M USD 5,200,000 dollars 12% twelve percent FY23 fiscal year 2023 2024-03-05 5 March "
    "2024 Q3 noon midnight half a million dozen first 3/4/2021 1.5e6 10^6 km² &amp; &nbsp; <b> "
    "</b> \\n \\u00e9 source: [1] (2) www.x.org/a https://a.example/b | --- ``` Here is Sure! "
    "Step 2: 1. 2) - • Références: Sources: don't isn't 10 a.m. until 9 o'clock twenty-five "
    "hundred St. U.S. Inc. 3 × 10^5 1 234 567 12,34,567 ٣٤ ① ½ ﬀ ﬁn co\u00adop e\u0301 ＡＢＣ １２"
)
WORDS = VOCABULARY.split(" ")


def _gzipped(name: str) -> Iterator[Row]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def real() -> Iterator[Row]:
    """The bundled traces as they are: query, passages, answer and what else tells of a score."""
    for line in (ROOT / "examples" / "mtrag.jsonl").read_text("utf-8").splitlines():
        yield json.loads(line)
    for name in ("ragtruth_answers", "mtrag_grounding", "clapnq_generators"):
        for row in _gzipped(name):
            for one in row["answers"].values() if "answers" in row else [row]:
                yield {**row, "answer": one.get("answer") or one["text"]}
    probes = ROOT / "agent" / "ragmeter" / "scorers" / "judge" / "probes.jsonl"
    for line in probes.read_text("utf-8").splitlines():
        yield json.loads(line)


def cited() -> Iterator[Row]:
    """Every form of a citation."""
    forms = parse_yaml((DATA / "citation_forms.yaml").read_bytes())
    claim = "The warranty is 24 months from the date of purchase"
    passages: list[Row] = [
        {
            "id": f"d{number}",
            "text": f"{claim}. Part {number} holds {number}.7 litres.",
            "metadata": {"source": source, "page": page, "url": f"https://kb.example/doc/{number}"},
        }
        for number, source, page in (
            (1, "docs/manual.pdf", 3),
            (2, "Setup Guide.md", "7"),
            (3, "specs.html", 12),
        )
    ]
    answers = [answer for form in forms["read"] for answer, _ in form["answers"]]
    answers += [answer for answer, _ in forms["from_zero"]]
    answers += [*forms["dangling"], *forms["unread"], *forms["none"]]
    for answer in answers:
        yield {
            "query": "How long is the warranty?",
            "passages": passages,
            "answer": answer.replace("{}", claim),
        }


def injected() -> Iterator[Row]:
    for line in (DATA / "injections.jsonl").read_text("utf-8").splitlines():
        text = json.loads(line)["text"]
        passages = [{"id": "a", "text": text}, {"id": "b", "text": "The answer is 3 [1]."}]
        yield {"query": "What is the grade?", "passages": passages, "answer": text}


def _numbers(rng: random.Random, text: str) -> str:
    writers: list[Callable[[int], str]] = [
        lambda n: f"{n:,}",
        lambda n: f"${n:,}",
        lambda n: f"{n:,}".replace(",", "."),
        lambda n: f"USD {n}",
        lambda n: f"{n / 1000:g}K",
        lambda n: f"{n} %",
        lambda n: f"{n}th of March 2021",
        lambda n: f"{n % 24}:{n % 60:02}",
        lambda n: f"{n % 12 or 12}.30 p.m.",
        lambda n: f"FY{n % 100:02}",
    ]
    words = ("twelve", "two million", "twenty-five percent", "noon", "Q2 2020", "half a million")

    def write(match: re.Match[str]) -> str:
        if rng.random() < 0.3:
            return rng.choice(words)
        return rng.choice(writers)(int(match.group().replace(",", "")[:12]))

    return re.sub(r"\b\d[\d,]{0,12}\b", write, text)


def _format(rng: random.Random, text: str) -> str:
    lines = [line for line in re.split(r"(?<=[.!?])\s+", text) if line]
    kind = rng.randrange(7)
    if kind == 0:
        return "## Answer\n\n" + "\n".join(f"- **{line[:8]}**{line[8:]}" for line in lines)
    if kind == 1:
        return (
            "\n".join(f"{at}. {line}" for at, line in enumerate(lines, 1)) + "\n\nSources:\n[1] a"
        )
    if kind == 2:
        return "| # | what |\n| --- | :-: |\n" + "\n".join(
            f"| {at} | {line} |" for at, line in enumerate(lines, 1)
        )
    if kind == 3:
        return "<p>" + "</p><p>".join(lines) + "</p><ul><li>x</li></ul><!-- note -->"
    if kind == 4:
        return " ".join(f"({at}) {line}" for at, line in enumerate(lines, 1))
    if kind == 5:
        return "\\n".join(lines)
    return "Step 1: " + " ".join(lines) + " See [the manual](https://kb.example/m) and `code[1]`."


def _characters(rng: random.Random, text: str) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return unicodedata.normalize("NFD", text).replace("fi", "ﬁ").replace("ff", "ﬀ")
    if kind == 1:
        return text.replace(" ", "\u00a0").replace("e", "e\u00ad", 5)
    if kind == 2:
        return text.replace(" ", "&nbsp;").replace("'", "&#39;")
    if kind == 3:
        return "".join(chr(ord(c) + 0xFEE0) if "0" <= c <= "z" and c != "\\" else c for c in text)
    if kind == 4:
        return re.sub(r"([a-z]{4})([a-z]{4})", "\\1-\n\\2", text, count=9).replace("o", "ο", 4)
    return re.sub(r"([a-z]{5})\b", r"\1²", text, count=6).replace("1", "¹").replace("half", "½")


def _cite(rng: random.Random, text: str) -> str:
    return re.sub(r"(?=[.!?](?:\s|$))", lambda _: rng.choice(MARKS), text)


def changed(rng: random.Random, row: Row) -> Row:
    """The row with its answer, and sometimes its passages and query, written in another way."""
    answer, query = row.get("answer") or "", row.get("query") or ""
    passages = [dict(one) for one in row.get("passages") or ()]
    kind = rng.randrange(9)
    if kind == 0:
        answer, query = _numbers(rng, answer), _numbers(rng, query)
    elif kind == 1:
        answer = _format(rng, answer)
    elif kind == 2:
        answer = _characters(rng, answer)
        for one in passages[::2]:
            one["text"] = _characters(rng, one.get("text") or "")
    elif kind == 3:
        answer = _cite(rng, answer)
    elif kind == 4:
        answer = rng.choice(REFUSALS) + (answer if rng.random() < 0.7 else "")
    elif kind == 5:
        answer = " ".join(rng.sample(FOREIGN, 2)) + (answer if rng.random() < 0.5 else "")
        passages.insert(0, {"id": "f", "text": rng.choice(FOREIGN) * 3})
    elif kind == 6:
        passages[:1] = [{"id": "r", "text": RECORD % (rng.randrange(9), rng.randrange(2000))}]
        answer = " ".join(rng.sample(RECORD_CLAIMS, 3)) + answer[:300]
    elif kind == 7:
        answer = " ".join(rng.choices(WORDS, k=rng.randrange(2, 90)))
        passages.append({"id": "w", "text": " ".join(rng.choices(WORDS, k=200))})
        query = " ".join(rng.choices(WORDS, k=9))
    else:
        answer = "".join(rng.choices(NOISE, k=rng.randrange(1, 300))) + answer[:200]
        passages.append({"id": "n", "text": "".join(rng.choices(NOISE, k=600))})
    changes: Row = {"answer": answer, "query": query, "passages": passages}
    if rng.random() < 0.05:
        changes |= rng.choice([{"abstained": True}, {"status": "error"}, {"passages": None}])
    return {**row, **changes}


FIELDS = ("query", "passages", "answer", "citations", "abstained", "status", "answer_length")


def bundled() -> Iterator[tuple[str, Trace]]:
    """Yield all traces, each with the name of its kind."""
    rows = list(real())
    kinds: dict[str, list[Row]] = {
        "real": rows,
        "cited": list(cited()),
        "injected": list(injected()),
    }
    for edition in range(5):
        rng = random.Random(edition)
        kinds[f"changed {edition}"] = [changed(rng, row) for row in rows]
    for kind, several in kinds.items():
        for number, row in enumerate(several):
            known = {name: row[name] for name in FIELDS if name in row}
            whole = {"trace_id": f"{number}", "service": "golden", "timestamp": 0, **known}
            yield kind, Trace.model_validate(whole)


def _plain(value: Any) -> Any:
    """A JSON-able value with 12 digits: the last ones are those of the processor's `log`."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def text_scores(trace: Trace) -> str:
    """All that the built-in scorers say of a trace."""
    prepared = PreparedTrace(trace)
    scores = score_cheap(prepared) + score_builtin(prepared)
    found = [[s.metric, str(s.state), s.value, s.reason, s.detail] for s in scores]
    return json.dumps(_plain(found), ensure_ascii=False, sort_keys=True)


def text_hashes() -> dict[str, list[str]]:
    """By kind a hash of what each `GROUP` traces give."""
    hashes: dict[str, list[str]] = {}
    pending: list[str] = []
    before = ""
    for kind, trace in [*bundled(), ("", None)]:
        if pending and (kind != before or len(pending) == GROUP):
            text = "\n".join(pending).encode("utf-8", "surrogatepass")
            hashes.setdefault(before, []).append(hashlib.sha256(text).hexdigest()[:12])
            pending = []
        before = kind
        if trace is not None:
            pending.append(text_scores(trace))
    return hashes
