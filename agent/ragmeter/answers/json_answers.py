"""The text that a reader sees of an answer that is JSON: what is scored.

Applications have a model answer as an object and show one field of it. An answer that is such an
object, bare or in a code fence, is scored by that field. `ANSWER_KEYS` are the fields, best first;
of an object without one, the longest text counts if it is a sentence. A list of claims is joined.
Where nothing reads as an answer (a record that was extracted), the answer stays as it is.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ragmeter.answers.cited_sources import read_source
from ragmeter.answers.wrapped_answers import read_wrapped_answer

# In lower case without `_`, `-` and blanks.
ANSWER_KEYS = (
    "finalanswer",
    "longanswer",
    "fullanswer",
    "detailedanswer",
    "answer",
    "answertext",
    "answermarkdown",
    "finalresponse",
    "response",
    "responsetext",
    "reply",
    "finaloutput",
    "output",
    "outputtext",
    "text",
    "content",
    "markdown",
    "result",
    "completion",
    "generatedtext",
    "message",
    "body",
    "shortanswer",
    "summary",
    "data",
    "refusal",
    "final",
    "assistant",
    "solution",
    "antwort",
    "réponse",
    "reponse",
    "respuesta",
    "resposta",
    "risposta",
    "antwoord",
    "svar",
    "odpowiedź",
    "cevap",
    "ответ",
    "відповідь",
    "الإجابة",
    "回答",
    "答案",
    "답변",
    # of a raw reply of a model
    "choices",
    "candidates",
    "parts",
    # of lists of claims
    "answers",
    "claims",
    "statements",
    "sentences",
    "facts",
    "keypoints",
    "points",
    "bullets",
    "paragraphs",
    "sections",
    "segments",
    "items",
    "steps",
)
_CHOICES = ("choices", "candidates")
# of one claim in a list
CLAIM_KEYS = ("claim", "statement", "sentence", "fact", "point", "bullet", "paragraph", "step")
# What is no answer: questions, thoughts, sources, settings.
_OTHER_KEYS = frozenset(
    (
        "question",
        "query",
        "prompt",
        "input",
        "userquery",
        "rewrittenquery",
        "thought",
        "thoughts",
        "thinking",
        "reasoning",
        "rationale",
        "chainofthought",
        "analysis",
        "scratchpad",
        "plan",
        "source",
        "sources",
        "citation",
        "citations",
        "reference",
        "references",
        "context",
        "contexts",
        "quote",
        "quotes",
        "evidence",
        "passage",
        "passages",
        "document",
        "documents",
        "chunks",
        "followup",
        "followups",
        "followupquestions",
        "suggestedquestions",
        "relatedquestions",
        "suggestions",
        "title",
        "url",
        "uri",
        "id",
        "type",
        "role",
        "model",
        "name",
        "arguments",
        "parameters",
        "metadata",
        "error",
        "traceback",
        "schema",
        "code",
        "sql",
    )
)
# A fence, after a line that leads to it at most.
_OPENS = re.compile(
    r"\s*(?:[^\n{}\[\]`]{0,120}:\s*\n\s*)?(?:```|~~~)[ \t]*(?:json[5c]?|jsonc|text)?\s*(?=[\[{])",
    re.IGNORECASE,
)
_CLOSES = re.compile(r"(?:```|~~~)\s*\Z")
# Fields beside the answer, or of one claim, that name its sources.
_SOURCE_KEYS = (
    "citations",
    "citation",
    "sources",
    "source",
    "references",
    "reference",
    "citedsources",
    "citedpassages",
    "citedids",
    "sourceids",
    "sourceid",
    "passageids",
    "passageid",
    "documentids",
    "docids",
    "chunkids",
    "usedsources",
    "evidence",
    "quotes",
    "quote",
    "quelle",
    "quellen",
    "fuentes",
)
_MAX_SOURCES = 100
_DECODER = json.JSONDecoder(strict=False)
_SPARE_COMMA = re.compile(r",(\s*[}\]])(?=\s*[,}\]\n]|\s*\Z)")
_ASSIGNED = re.compile(  # TOML
    r'\s*(?P<key>[a-z_]{3,20})\s*=\s*(?P<text>"(?:[^"\\\n]|\\.)*")\s*(?:\n|\Z)'
)
_PYTHON = re.compile(r"\s*[\[{]\s*(?:[\[{]\s*)?'")
_CUT = re.compile(r'"(?P<key>[^"\\\n]{1,40})"\s*:\s*"(?P<text>(?:[^"\\]|\\.)*)\\?(?P<end>"?)')
_LIST_KEY_SIGNS = re.compile(r"[\s_\-]")
_EMPTY = ("null", '""', "undefined")  # an answer of null, as it was written down
_MAX_TEXT = 200_000  # characters of an answer that is opened
_MAX_DEPTH = 6
_MAX_ITEMS = 500  # of one list of claims
_MIN_WORDS = 4  # of a sentence at a key that nobody knows
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # scripts without blanks
_MIN_WIDE = 8


@lru_cache(8)  # a trace in hand is asked several times
def read_answer_text(text: str) -> str:
    """Return what the user read of an answer: of JSON its field, of a raw reply what is inside."""
    wrapped = read_wrapped_answer(text)
    inner = text if wrapped is None else wrapped
    read = read_json_answer(inner)
    return inner if read is None else read


def read_json_answer(text: str) -> str | None:
    """Return the text of a JSON answer's field, "" for an empty one; None for any other answer."""
    if text.strip() in _EMPTY:
        return ""
    body = _json_body(text)
    if body is None:
        assigned = _ASSIGNED.match(text) if "=" in text[:40] else None
        if assigned and _normal(assigned["key"]) in ANSWER_KEYS:
            return str(json.loads(assigned["text"], strict=False)).strip()
        return None
    value = _parse(body)
    if value is None:
        return _cut_text(body)
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return None  # "[1]", and what reads as a list anyway
    if not isinstance(value, dict | list) or not value or _is_call(value):
        return None
    found = _field_text(value)
    if found is not None:
        return _opened(found)
    longest = max(_sentences(value), key=len, default=None)
    return None if longest is None else _opened(longest)


def read_json_sources(
    given: str, text: str
) -> list[tuple[int | None, int | None, list[str | dict[str, Any]]]]:
    """Return the sources that a JSON answer names beside its text: (start, end, sources).

    Those of a claim are placed at its line of `text`, all others stand for the whole answer.
    """
    wrapped = read_wrapped_answer(given)
    body = _json_body(given if wrapped is None else wrapped)
    value = None if body is None else _parse(body)
    found: list[tuple[int | None, int | None, list[str | dict[str, Any]]]] = []
    if isinstance(value, dict | list):
        _collect_sources(value, text, found)
    return found[:_MAX_SOURCES]


def _collect_sources(
    value: Any,
    text: str,
    found: list[tuple[int | None, int | None, list[str | dict[str, Any]]]],
    depth: int = 0,
) -> None:
    if depth > _MAX_DEPTH or len(found) >= _MAX_SOURCES:
        return
    if isinstance(value, list):
        for item in value[:_MAX_ITEMS]:
            if isinstance(item, dict):
                _collect_sources(item, text, found, depth + 1)
        return
    names = {_normal(key): given for key, given in value.items()}
    claim = _claim(value) or _field_text(value)
    at = text.find(claim.strip()) if claim and claim.strip() else -1
    whole = at < 0 or not claim or len(claim.strip()) >= len(text)
    sources: list[str | dict[str, Any]] = []
    for key in _SOURCE_KEYS:
        if key in names:
            given = names[key]
            listed = given if isinstance(given, list) else [given]
            sources += [one for item in listed[:_MAX_SOURCES] if (one := _source_of(item, key))]
    if sources:
        place = (None, None) if whole or not claim else (at, at + len(claim.strip()))
        found.append((*place, sources))
    for key, given in names.items():
        if key in ANSWER_KEYS and isinstance(given, dict | list):
            _collect_sources(given, text, found, depth + 1)


def _source_of(value: Any, key: str) -> str | dict[str, Any] | None:
    if isinstance(value, dict):
        return value if read_source(value) else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    name = str(value).strip().strip("[]【】()").strip()
    if not name:
        return None
    return {"quote": name} if key in ("quote", "quotes", "evidence") and " " in name else name


def _opened(text: str) -> str:
    """Return a text, which may be JSON once more."""
    inner = read_json_answer(text) if len(text) < _MAX_TEXT else None
    return text.strip() if inner is None else inner


def _json_body(text: str) -> str | None:
    head = text[:1]
    if head not in "{[`~" or not head:
        start = text[:200].lstrip()
        if not start.startswith(("{", "[", "`", "~")) and "```" not in text[:200]:
            return None
    if len(text) > _MAX_TEXT:
        return None
    opens = _OPENS.match(text)
    if opens:
        closes = _CLOSES.search(text, opens.end())
        return text[opens.end() : closes.start() if closes else None]
    return text if text.lstrip()[:1] in ("{", "[") else None


def _parse(body: str) -> Any:
    """Return what JSON, or Python's text form of a dict, stands for; None for any other text."""
    try:
        return json.loads(body, strict=False)
    except (ValueError, RecursionError):
        pass
    try:  # of several objects, a line each, the first; and commas behind the last of a list
        first, end = _DECODER.raw_decode(_SPARE_COMMA.sub(r"\1", body.strip()))
        rest = _SPARE_COMMA.sub(r"\1", body.strip())[end:].lstrip()
        if not rest or rest.startswith("{"):
            return first
    except (ValueError, RecursionError):
        pass
    if _PYTHON.match(body):
        try:
            return ast.literal_eval(body.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return None


def _cut_text(body: str) -> str | None:
    """Return the answer's field of JSON that was cut off, as at a limit of tokens."""
    if body.rstrip()[-1:] in ("}", "]") or "\n```" in body or not body.lstrip().startswith("{"):
        return None
    for match in _CUT.finditer(body):
        if _normal(match["key"]) in ANSWER_KEYS:
            try:
                return str(json.loads(f'"{match["text"]}"', strict=False)).strip()
            except ValueError:
                return match["text"].strip()
    return None


def _is_call(value: Any) -> bool:
    """Return whether an object is the call of a tool or an error, not an answer."""
    return isinstance(value, dict) and (
        ("arguments" in value and "name" in value) or "tool_calls" in value
    )


def _normal(key: object) -> str:
    return _LIST_KEY_SIGNS.sub("", str(key)).lower()


def _field_text(value: Any, depth: int = 0) -> str | None:
    """Return the text of the best field, "" where there are only empty ones, None without any."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return _joined(value, depth)
    if not isinstance(value, dict):
        return _scalar(value)
    if not value:
        return "" if depth else None
    by_name: dict[str, Any] = {}
    for key, given in value.items():
        by_name.setdefault(_normal(key), given)
    empty = None
    for name in ANSWER_KEYS:
        if name not in by_name:
            continue
        given = by_name[name]
        if name in _CHOICES and isinstance(given, list):
            given = given[:1]  # what was shown
        text = _field_text(given, depth + 1) if given is not None else ""
        if text:
            return text
        empty = "" if text == "" else empty
    return empty


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return None


def _joined(items: list[Any], depth: int) -> str | None:
    """Return the claims of a list, a line each."""
    lines = []
    empty = not items
    for item in items[:_MAX_ITEMS]:
        line = _claim(item) if isinstance(item, dict) else None
        if line is None:
            line = "" if item is None else _field_text(item, depth + 1)
        if line:
            lines.append(line.strip())
        empty = empty or line == ""
    return "\n".join(lines) if lines else "" if empty else None


def _claim(item: Mapping[str, Any]) -> str | None:
    names = {_normal(key): value for key, value in item.items()}
    return next((names[key] for key in CLAIM_KEYS if isinstance(names.get(key), str)), None)


def _sentences(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts that read as a sentence, at any key that may hold an answer."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, given in value.items():
            if _normal(key) not in _OTHER_KEYS:
                yield from _sentences(given, depth + 1)
    elif isinstance(value, list):
        for item in value[:_MAX_ITEMS]:
            yield from _sentences(item, depth + 1)
    elif isinstance(value, str) and (
        len(_WORD.findall(value)) >= _MIN_WORDS or len(_WIDE.findall(value)) >= _MIN_WIDE
    ):
        yield value
