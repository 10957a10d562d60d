"""Split a text into which a tool has joined the documents that it found.

Tools write what they found as tagged or numbered documents, as records of labelled lines
(`Title: ...`, `URL: ...`), as numbered or linked items, between rules, or in bullets below a
heading. A text counts as several documents only where all of them have the same form: an article
may have rules, steps and bullets too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise

from ragmeter.ingest.conventions.values import key_list, key_set

MAX_JOINED = 1_000  # documents of one text
_MAX_HEADING = 200  # characters that a tool writes before the first of its documents
_MIN_WORDS = 4  # of a document that has neither a label nor a tag
_CONTENT_TAG = re.compile(
    r"<(document_contents?|page_content|content|text)>(.*?)(?:</\1>|\Z)", re.DOTALL
)
_SOURCE_TAG = re.compile(r"<(?:source|id|title|url)>([^<>]{1,500})</")
_END_TAG = re.compile(r"(?:</\w+>\s*)+$")
_RULE = re.compile(r"^[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,}|[─—]{3,})[ \t]*$", re.MULTILINE)
_LONG_RULE = 10  # signs of a rule that no writer of Markdown types
_RULE_AT_END = re.compile(r"\s*^[ \t]*(?:-{3,}|={3,}|\*{3,}|_{3,})\s*\Z", re.MULTILINE)
_LAST_HEADING = re.compile(r"\n\s*\w+:\Z")
_LABELLED = re.compile(
    r"(?P<mark>[ \t]*(?:\[\d{1,3}\] |\d{1,3}[.)] |[-*•] |#{1,6} )?)"
    r"(?:\*\*|__)?(?P<label>[A-Za-z][A-Za-z _]{1,30}?)(?:\*\*|__)?::?(?:\*\*|__)?(?:[ \t]+|$)"
    r"(?P<value>.*)"
)
_ITEM = re.compile(r"^(?P<number>\d{1,3})[.):][ \t]+(?P<title>\S.*)$", re.MULTILINE)
_LINK = re.compile(
    r"^(?:[-*•] |\d{1,3}[.)] |#{1,6} )?\[[^\]\n]{1,300}\]\((?P<id>[^)\s]{1,500})\)", re.M
)
_SOURCE_LABELS = ("source", "url", "link", "quelle")
_BLANK = re.compile(r"\n[ \t]*\n")
_NAMED = re.compile(r"^(?P<number>\d{1,3})[.)] \[(?P<id>[^\]\n]{1,200})\] (?=\S)", re.MULTILINE)
_BULLET = re.compile(r"^(?P<indent>[ \t]*)(?:[-*•]|\d{1,3}[.)]) +(?=\S)")
_SNIPPET = re.compile(r"(?:^|\]?, )\[?snippet: ")
_ROW_COUNT = re.compile(r"\(?\d+ rows?(?: in set)?(?: \([\d.]+ sec\))?\)?", re.IGNORECASE)
_TABLE_RULE = re.compile(r"[\s|:+-]*-[\s|:+-]*")
_TABLE_EDGE = re.compile(r"\s*\+[-=+]+\+\s*")
_TABLE_TEXTS = (
    "content",
    "text",
    "chunk",
    "chunk text",
    "page content",
    "body",
    "passage",
    "snippet",
)
# a paragraph of metadata, as LlamaIndex puts it above a text: `file_path: a.md`
_METADATA = re.compile(
    r"(?:\A|(?<=\n\n)|(?<=-\n))(?P<title>)[ \t]*"
    r"(?P<label>file_path|file_name|page_label|source|url|document_title|title): "
    r"(?P<id>[^\n]{1,500})(?:\n\w{1,40}: [^\n]{0,500}){0,30}\n[ \t]*\n"
)
# the title of a section, and its address below it
_ADDRESSED = re.compile(
    r"^(?P<title>#{1,6} )[^\n]{1,300}\n"
    r"(?P<label>[A-Za-z][\w ]{0,40}): ?<?(?P<id>https?://[^\s>]{1,500})>?$",
    re.MULTILINE,
)
# the heading above what was found, which is no document itself
_HEADING = re.compile(
    r"[\s#*=-]*(?:here (?:are|is)|these are|showing|top|the|all|your)?[^\n<:]{0,60}?"
    r"\b(?:(?:results?|hits|matches|ergebnisse|treffer)\b"
    r"(?: (?:for|from|in|of|on|matching|zu|für)\b[^\n]{0,160}|[^\w\n]*)"
    r"|(?:documents?|passages?|sources|entries|articles|snippets|chunks|excerpts|memories|dokumente)\b"
    r"[^\n]{0,160}:[\s*]*)"
    r"|[\s#*=-]*total(?: \w+)?: \d{1,9}\b[^\n]{0,160}"
    r"|[\s#*=-]*(?:found|retrieved|gefunden:?) (?:the following|\d{1,4})\b[^\n]{0,160}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class JoinedDocument:
    """A document of a joined text; `id` is "" if the text tells none."""

    id: str
    text: str


def is_heading(text: str) -> bool:
    """Return whether a text is but the heading above documents: `Results for the query 'x'`."""
    kept = text.strip()
    return "\n" not in kept and not kept.endswith(".") and _HEADING.fullmatch(kept) is not None


def split_joined_documents(text: str) -> list[JoinedDocument] | None:
    """Return the documents that a tool has joined in a text, None for any other text."""
    ways = (
        _tabled,
        _marked,
        _items,
        _records,
        _sourced,
        _headed,
        _linked,
        _snippets,
        _ruled,
        _bulleted,
    )
    found = (way(text) for way in ways)
    return next((documents for documents in found if documents), None)


@cache
def _joints() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.MULTILINE) for pattern in key_list("joined_documents"))


def _marked(text: str) -> list[JoinedDocument] | None:
    """Split at the marks of `joined_documents` in `value_keys.yaml`.

    Numbers must count up by one: `[3]` in the middle of a text is a citation.
    """
    for pattern in (*_joints(), _NAMED):
        marks = list(islice(pattern.finditer(text), MAX_JOINED))
        if not marks or marks[0].start() > _MAX_HEADING or not _count_up(marks):
            continue
        pieces = [
            _inner_document(
                mark.groupdict().get("id") or "", _END_TAG.sub("", _trimmed(part)).strip()
            )
            for mark, part in zip(marks, _parts(text, marks), strict=True)
        ]
        if any(_starts_labelled(piece.text) for piece in pieces):
            continue  # fields of records, each with the number of its record
        return [piece for piece in pieces if piece.text]
    return None


def _count_up(marks: Sequence[re.Match[str]]) -> bool:
    numbers = [int(mark["number"]) for mark in marks if "number" in mark.groupdict()]
    return not numbers or (
        numbers[0] <= 1 and numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    )


def _parts(text: str, marks: Sequence[re.Match[str]]) -> list[str]:
    """Return what stands behind each mark, up to the next one."""
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]


def _trimmed(text: str) -> str:
    return _RULE_AT_END.sub("", text.strip()).strip()


def _inner_document(name: str, text: str) -> JoinedDocument:
    """Return a document, which may have tags of its own for source and content."""
    content = _CONTENT_TAG.search(text)
    source = _SOURCE_TAG.search(text[: content.start()]) if content else None
    if content is None:
        return JoinedDocument(name, text)
    return JoinedDocument(source[1].strip() if source else name, content[2].strip())


def _starts_labelled(text: str) -> bool:
    match = _LABELLED.match(text)
    return match is not None and _known(match) is not None


def _known(match: re.Match[str]) -> str | None:
    """Return the label of a line in lower case if tools label their results so."""
    label = match["label"].lower().replace("_", " ")
    return label if label in key_set("record_labels") | key_set("record_texts") else None


@dataclass(frozen=True, slots=True)
class _LabelledLine:
    """A labelled line: the number of its line, its label and what stands behind it."""

    line: int
    label: str
    value: str


def _fields(lines: Sequence[str]) -> Iterator[_LabelledLine]:
    for number, line in enumerate(lines):
        match = _LABELLED.match(line)
        label = _known(match) if match is not None else None
        if match is not None and label is not None:
            yield _LabelledLine(number, label, match["value"].strip())


def _records(text: str) -> list[JoinedDocument] | None:
    """Split records of labelled lines: each begins with the same two labels.

    The text of a record is at the label of a text, and goes on to a label that every record has.
    """
    lines = text.splitlines()
    fields = list(_fields(lines))
    if len(fields) < 2 or not all(map(_is_preface, lines[: fields[0].line])):
        return None
    first, second = fields[0].label, fields[1].label
    starts = [
        n
        for n, (one, two) in enumerate(pairwise(fields))
        if (one.label, two.label) == (first, second) and _adjoin(lines, one, two)
    ]
    if first == second or not starts or starts[0] != 0:
        return None
    groups = [
        fields[start:end] for start, end in zip(starts, [*starts[1:], len(fields)], strict=True)
    ][:MAX_JOINED]
    labels = [{one.label for one in group} for group in groups]
    shared = frozenset(label for label in labels[0] if all(label in each for each in labels))
    if not shared & key_set("record_texts") or not shared & key_set("record_labels"):
        return None
    ends = [*(group[0].line for group in groups[1:]), len(lines)]
    if len(ends) > 1 and all(_RULE.fullmatch(lines[end - 1]) for end in ends[:-1]):
        # rules end them, so what stands behind the last rule is no part of the last record
        rules = (n for n in range(groups[-1][0].line, len(lines)) if _RULE.fullmatch(lines[n]))
        ends[-1] = next(rules, len(lines))
    found = [_record(lines, group, end, shared) for group, end in zip(groups, ends, strict=True)]
    return [one for one in found if one.text]


def _is_preface(line: str) -> bool:
    """Return whether a line may stand above records: blank, a rule, a heading or a summary."""
    summary = line.startswith("Answer: ")  # of Tavily
    return not line.strip() or summary or is_heading(line) or _RULE.fullmatch(line) is not None


def _adjoin(lines: Sequence[str], one: _LabelledLine, two: _LabelledLine) -> bool:
    """Return whether nothing stands between two fields."""
    return not any(line.strip() for line in lines[one.line + 1 : two.line])


def _record(
    lines: Sequence[str], fields: Sequence[_LabelledLine], end: int, shared: frozenset[str]
) -> JoinedDocument:
    names = {one.label: one.value for one in reversed(fields)}
    name = next((names[label] for label in key_list("record_ids") if names.get(label)), "")
    if "code" in names:  # a snippet, all of which the model reads
        return JoinedDocument(name, _trimmed("\n".join(lines[fields[0].line : end])))
    texts = [label for label in key_list("record_texts") if label in shared]
    held = next(one for one in fields if one.label == texts[0])
    behind = (one.line for one in fields if one.line > held.line and one.label in shared)
    stop = next(behind, end)
    body = [held.value, *lines[held.line + 1 : stop]]
    text = _trimmed("\n".join(body))
    # the heading of what follows the last record
    return JoinedDocument(name, _LAST_HEADING.sub("", text) if stop < end else text)


def _tabled(text: str) -> list[JoinedDocument] | None:
    """Read the rows of a table of a database's client or of Markdown, one column of which is text.

    The whole text is the table, but for the number of its rows.
    """
    if "|" not in text:
        return None
    lines = [line for line in text.strip().splitlines() if line.strip()]
    while lines and _ROW_COUNT.fullmatch(lines[-1].strip()):
        lines.pop()
    lines = [line for line in lines if not _TABLE_EDGE.fullmatch(line)]  # of MySQL
    if len(lines) > 1 and _TABLE_RULE.fullmatch(lines[1]):
        del lines[1]
    elif not text.lstrip().startswith("+-"):
        return None
    table = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    if len(table) < 2 or not all(len(row) == len(table[0]) for row in table):
        return None
    names = [name.strip("*`").lower().replace("_", " ") for name in table[0]]
    held = next((names.index(name) for name in _TABLE_TEXTS if name in names), None)
    if held is None:
        return None
    ids = (names.index(name) for name in ("id", *key_list("record_ids")) if name in names)
    identity = next(ids, None)
    found = [
        JoinedDocument("" if identity is None else row[identity], row[held])
        for row in table[1 : MAX_JOINED + 1]
    ]
    words = sum(len(one.text.split()) for one in found)
    return [one for one in found if one.text] if words >= _MIN_WORDS * len(found) else None


def _headed(text: str) -> list[JoinedDocument] | None:
    """Split at the metadata above each text, or at titles with an address below them.

    LlamaIndex writes the one, guides that are cut into sections have the other.
    """
    for pattern in (_METADATA, _ADDRESSED):
        marks = list(islice(pattern.finditer(text), MAX_JOINED))
        if len(marks) < 2 or marks[0].start() > _MAX_HEADING:
            continue
        if not _is_preface(text[: marks[0].start()]) or len({one["label"] for one in marks}) > 1:
            continue
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        found = [
            JoinedDocument(
                mark["id"].strip(),
                _trimmed(text[mark.start("title") : end])
                if mark["title"]
                else _trimmed(text[mark.end() : end]),
            )
            for mark, end in zip(marks, ends, strict=True)
        ]
        if all(len(one.text.split()) >= _MIN_WORDS for one in found):
            return found
    return None


def _sourced(text: str) -> list[JoinedDocument] | None:
    """Split texts each of which ends with a line that names its source."""
    parts = [part.strip() for part in _BLANK.split(text.strip(), MAX_JOINED)]
    found: list[JoinedDocument] = []
    kept: list[str] = []
    for part in parts:
        body, _, last = part.rpartition("\n")
        match = _LABELLED.match(last)
        if match is None or _known(match) not in _SOURCE_LABELS:
            kept.append(part)
            continue
        text = "\n\n".join([*kept, body]).strip()
        kept = []
        if len(text.split()) < _MIN_WORDS or _starts_labelled(text):
            return None
        found.append(JoinedDocument(match["value"].strip(), text))
    return found if len(found) > 1 and not kept else None


def _items(text: str) -> list[JoinedDocument] | None:
    """Split numbered items, each of which has the address that it was found at in a line."""
    marks = list(islice(_ITEM.finditer(text), MAX_JOINED))
    if not marks or marks[0].start() > _MAX_HEADING or not _count_up(marks):
        return None
    found = [_item(part) for part in _parts(text, marks)]
    return [one for one in found if one is not None and one.text] if all(found) else None


def _item(part: str) -> JoinedDocument | None:
    name = ""
    body: list[str] = []
    for line in (line.strip() for line in part.strip().splitlines()):
        match = _LABELLED.match(line)
        label = _known(match) if match is not None else None
        if match is not None and label in key_set("record_labels"):
            name = name or (match["value"].strip() if label in key_set("record_ids") else "")
        elif re.fullmatch(r"<?https?://\S+>?", line):
            name = name or line.strip("<>")
        else:
            body.append(match["value"] if match is not None and label is not None else line)
    return JoinedDocument(name, "\n".join(body).strip()) if name else None


def _linked(text: str) -> list[JoinedDocument] | None:
    """Split items that begin with a link, each with a text below or behind it."""
    marks = list(islice(_LINK.finditer(text), MAX_JOINED))
    if len(marks) < 2 or marks[0].start() > _MAX_HEADING:
        return None
    parts = [part.strip().lstrip(":-–— \n") for part in _parts(text, marks)]
    if not all(len(part.split()) >= _MIN_WORDS for part in parts):
        return None
    return [JoinedDocument(mark["id"], part) for mark, part in zip(marks, parts, strict=True)]


def _snippets(text: str) -> list[JoinedDocument] | None:
    """Split what LangChain's tool of DuckDuckGo writes in one line."""
    if not text.lstrip().startswith(("snippet: ", "[snippet: ")):
        return None
    found: list[JoinedDocument] = []
    for part in _SNIPPET.split(text.strip())[1 : MAX_JOINED + 1]:
        body, titled, rest = part.partition(", title: ")
        name = rest.rpartition(", link: ")[2].rstrip("] \n")
        if not titled:
            return None
        found.append(JoinedDocument(name, body.strip()))
    return found


def _ruled(text: str) -> list[JoinedDocument] | None:
    """Split at rules, where all parts begin alike: an article has rules between its sections."""
    rules = list(islice(_RULE.finditer(text), MAX_JOINED))
    if not rules:
        return None
    starts = [0, *(rule.end() for rule in rules)]
    ends = [*(rule.start() for rule in rules), len(text)]
    parts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    parts = [part for part in parts if part]
    if parts and is_heading(parts[0]):
        parts = parts[1:]
    heads = {_head(part) for part in parts}
    long = all(len(rule[0].strip()) >= _LONG_RULE for rule in rules)
    if len(parts) < 2 or len(heads) > 1 or (heads == {"#"} and not long):
        return None
    if heads == {""} and not all(len(part.split()) >= _MIN_WORDS for part in parts):
        return None
    return [JoinedDocument("", part) for part in parts]


def _head(part: str) -> str:
    """Return the kind of the first line of a part: a heading, a label, another mark, or none."""
    line = part.partition("\n")[0]
    labelled = _LABELLED.match(line)
    if labelled is not None and not labelled["mark"].strip():
        return labelled["label"].lower()
    return line[0] if line[0] in "#[<*|>-" else ""


def _bulleted(text: str) -> list[JoinedDocument] | None:
    """Split the bullets below a heading that says that they are what was found."""
    heading, _, rest = text.strip().partition("\n")
    if not heading.rstrip().endswith(":") or not is_heading(heading):
        return None
    items: list[list[str]] = []
    indent: str | None = None
    for line in rest.splitlines():
        mark = _BULLET.match(line)
        if mark is not None and indent in (None, mark["indent"]):
            indent = mark["indent"]
            items.append([line[mark.end() :]])
        elif items:
            items[-1].append(line.strip())
        elif line.strip():
            return None
    texts = ["\n".join(item).strip() for item in items]
    if len(texts) < 2 or not all(len(one.split()) >= _MIN_WORDS for one in texts):
        return None
    return [JoinedDocument("", one) for one in texts]
