"""Take a model's thoughts out of a text: what is left is what the user read.

Servers without a parser for reasoning leave the thoughts of a model in its answer, between tags
that differ by model. Tags in code, and tags that a text only speaks of, are left alone.
"""

from __future__ import annotations

import re

# No thoughts are without one of these, or begin a text in one of these ways.
_SIGNS = ("<", "&lt;", "THINK]", "◁", "[[ ## ")
_BEGINNINGS = (
    "Thinking...",
    "Here is my th",
    "Here's my th",
    "Here’s my th",
    "analysis",
    "Thought:",
    "**Thought",
)
# Names that stand for nothing else; those of prompts ("write your analysis first") count in pairs
# at the beginning of a line alone.
_SURE = r"(?:ant|seed:|mm:|bot_)?_?think(?:ing)?|thoughts?|antthinking|chain_of_thought"
_LIKELY = (
    r"reason(?:ing)?|thought_process|thinking_process|reflect(?:ion)?|scratch_?pad|analysis"
    r"|search_quality_(?:reflection|score)|(?:inner|internal)_(?:monologue|thoughts?|reasoning)|deliberation|cot"
)
_CODE = r"(?P<code>```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`)"
_TAG = re.compile(
    rf"{_CODE}"
    rf"|(?:<|&lt;)(?P<end>/)?\s?(?P<name>{_SURE}|{_LIKELY})(?:\s[^<>&\n]{{0,200}})?\s?(?:>|&gt;)"
    r"|(?P<details><details\s[^<>\n]{0,200}?type=\"reasoning\"[^<>\n]{0,300}>"
    r"|<details\b[^<>\n]{0,300}>\s{0,20}<summary>\s{0,20}(?:thinking|thought|reasoning)\b)"
    r"|\[(?P<square_end>/)?THINK(?:ING)?\]"
    r"|◁(?P<moon_end>/)?think▷"
    r"|<\|?/?(?P<word>begin_of_thought|end_of_thought|start_thinking|end_thinking|/?think(?:ing)?)\|>"
    r"|<(?P<unused>unused9[45])>",
    re.IGNORECASE | re.DOTALL,
)
_IS_SURE = re.compile(rf"(?:{_SURE})\Z", re.IGNORECASE)
_DETAILS_END = re.compile(r"</details>", re.IGNORECASE)
# The channels of models, thoughts and what else stands before the answer, by their special tokens.
_CHANNELS = (
    # of Gemma
    re.compile(r"\s*<\|channel>thought\b.*?(?:<channel\|>|\Z)\s*", re.DOTALL),
    # of gpt-oss
    re.compile(
        r"\s*(?:<\|start\|>assistant)?<\|channel\|>(?!final).*?<\|channel\|>final(?:[^<]|<\|constrain\|>){0,40}<\|message\|>",
        re.DOTALL,
    ),
    re.compile(
        r"\s*(?:<\|start\|>assistant)?<\|channel\|>final(?:[^<]|<\|constrain\|>){0,40}<\|message\|>"
    ),
    re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary).*\Z", re.DOTALL),
)
# Thoughts at the beginning of a whole text, up to where the answer begins.
_HEADS = (
    # what an agent of the form "ReAct" writes, in one text
    re.compile(r"\s*(?:\*\*)?Thought:.*\n\s*(?:\*\*)?Final Answer:(?:\*\*)?\s*", re.DOTALL),
    re.compile(r"\s*Thinking\.\.\.\n.*?(?:\n\.\.\.done thinking\.|\Z)\s*", re.DOTALL),
    re.compile(
        r"\s*Here(?: is|['’]s) my thought process:?.*?(?:Here(?: is|['’]s) my response:?|\Z)\s*",
        re.DOTALL | re.IGNORECASE,
    ),
    *_CHANNELS,
    # the channels of gpt-oss where a server has left out its special tokens
    re.compile(r"analysis(?=\S).*?assistantfinal(?=\S)", re.DOTALL),
    re.compile(r"\s*<\|begin_of_box\|>\s*"),  # of GLM, without thoughts
    # the fields of DSPy, of which the last is the answer
    re.compile(
        r"\s*\[\[ ## (?:reasoning|rationale|thoughts?) ## \]\].*"
        r"\[\[ ## (?!completed|reasoning|rationale|thoughts?)\w+ ## \]\]\s*",
        re.DOTALL,
    ),
    re.compile(r"\s*\[\[ ## (?:answer|response|output|result) ## \]\]\s*"),
)
# What is left of a template around the answer once the thoughts are out.
_ANSWER_HEAD = re.compile(
    r"\s*(?:<(?P<tag>answer|response|result|final_answer|final|output|solution)>"
    r"|<\|(?:begin_of_solution|start_response|begin_of_box)\|>)\s*",
    re.IGNORECASE,
)
_ANSWER_TAIL = re.compile(
    r"\s*(?:</(?:answer|response|result|final_answer|final|output|solution)>"
    r"|<\|(?:end_of_solution|end_response|end_of_box)\|>)\s*\Z",
    re.IGNORECASE,
)
_TEMPLATE_TAIL = re.compile(
    r"\s*(?:<\|(?:return|end|call|end_of_box)\|>|\[\[ ## completed ## \]\])\s*\Z"
)

_Spans = list[tuple[int, int]]


def find_thoughts(text: str) -> _Spans:
    """Return the parts of an answer that are thoughts, or marks around them, in order."""
    for sign in _SIGNS:  # of every trace: a generator would take as long as the search
        if sign in text:
            break
    else:
        if not text[:64].lstrip().startswith(_BEGINNINGS):
            return []
    spans: _Spans = []
    for head in _HEADS:
        if match := head.match(text):
            spans.append(match.span())
            break
    spans += _tagged(text, spans[0][1] if spans else 0)
    return _trimmed(text, spans) if spans else []


def end_of_leading_thoughts(text: str) -> int:
    """Return where the thoughts end with which a text begins, or 0 where it begins with none.

    Only marks count that `dialect.clean_text` breaks in the prompts of a judge: another mark could
    stand in a passage that the thoughts quote. Thoughts without an end are the whole text.
    """
    if not text.startswith(("<", "[", "◁")):
        return 0
    for head in _CHANNELS:
        if match := head.match(text):
            return match.end()
    first = _TAG.match(text)
    if first is None or first["details"]:
        return 0
    start, end = next(iter(_tagged(text, 0)), (0, 0))
    return end if start == 0 and not text[:end].endswith(";") else 0


def without_spans(text: str, spans: _Spans) -> str:
    """Return the text without parts of it."""
    pieces = []
    done = 0
    for start, end in spans:
        pieces.append(text[done:start])
        done = end
    return "".join([*pieces, text[done:]])


def place_without(place: int, spans: _Spans) -> int:
    """Return where a place of the text is once parts of it are gone."""
    return place - sum(min(place, end) - start for start, end in spans if start < place)


def _tagged(text: str, at: int) -> _Spans:
    """Return the thoughts between tags, the tags included."""
    spans: _Spans = []
    opened: tuple[int, str, bool] | None = None  # where, kind of tag, whether it counts alone
    depth = 0
    first = at
    for tag in _TAG.finditer(text, at):
        if tag.start() < at or (tag["code"] and opened is None):
            continue
        if tag["code"]:
            # a tag within what looks like code, while a thought is open, may still close it
            close = _close_within(tag, opened[1]) if opened else None
            if opened and close is not None:
                spans.append((opened[0], close))
                opened, at = None, close
            continue
        kind, ends = _kind(tag)
        sure = kind != "name" or _IS_SURE.match(tag["name"]) is not None
        mark = _mark(tag)
        if opened is not None:
            if mark == opened[1]:
                depth += -1 if ends else 1
            if depth == 0:
                spans.append((opened[0], tag.end()))
                opened = None
        elif ends:
            # a template may have opened the thoughts in the prompt
            if sure and not spans and _closes(text, tag.start(), tag.end()):
                spans.append((first, tag.end()))
        elif tag["details"]:
            end = _DETAILS_END.search(text, tag.end())
            at = end.end() if end else len(text)
            spans.append((tag.start(), at))
        elif _opens(text, tag.start(), sure):
            opened, depth = (tag.start(), mark, sure), 1
    if opened is not None and opened[2] and not without_spans(text[: opened[0]], spans).strip():
        spans.append((opened[0], len(text)))  # cut off while it thought
    return spans


def _kind(tag: re.Match[str]) -> tuple[str, bool]:
    """Return what sort of tag it is, and whether it ends thoughts."""
    if tag["name"]:
        return "name", tag["end"] is not None
    if tag["details"]:
        return "details", False
    if tag["word"]:
        word = tag["word"].lower()
        return "word", word.startswith(("end", "/")) or tag[0].startswith(("</", "<|/"))
    if tag["unused"]:
        return "unused", tag["unused"] == "unused95"
    if tag[0].startswith("["):
        return "square", tag["square_end"] is not None
    return "moon", tag["moon_end"] is not None


def _mark(tag: re.Match[str]) -> str:
    """Return what a tag and the one that ends it have in common; `<thinking>` may end `<think>`."""
    name = tag["name"]
    if name is None:
        return _kind(tag)[0]
    return "think" if _IS_SURE.match(name) else name.lower()


def _close_within(code: re.Match[str], mark: str) -> int | None:
    for tag in _TAG.finditer(code.string, code.start() + 1, code.end()):
        if not tag["code"] and _kind(tag)[1] and mark == _mark(tag):
            return tag.end()
    return None


def _opens(text: str, at: int, sure: bool) -> bool:
    """Return whether a tag stands where thoughts begin, not where a sentence speaks of it."""
    line = text.rfind("\n", 0, at) + 1
    before = text[line:at].strip(" \t\r\ufeff\u200b")
    return not before or (sure and before[-1] in ".!?:;…)]>*")


def _closes(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - 64) : start].rstrip(" \t")
    after = text[end : end + 64].lstrip(" \t")
    return not before or not after or before[-1] in "\n.!?:;…)]}\"'*`" or after[0] == "\n"


def _trimmed(text: str, spans: _Spans) -> _Spans:
    """Widen spans by the blanks and marks between them and the answer."""
    rest = without_spans(text, spans)
    head = _ANSWER_HEAD.match(rest)
    start = head.end() if head else len(rest) - len(rest.lstrip(" \t\r\n\ufeff"))
    tail = _ANSWER_TAIL.search(rest) if head else None
    tail = tail or _TEMPLATE_TAIL.search(rest)
    end = max(start, tail.start() if tail else len(rest.rstrip()))
    # back to the places in the whole text
    kept: _Spans = []
    seen = 0
    done = 0
    for gap_start, gap_end in [*spans, (len(text), len(text))]:
        piece = (max(start - seen, 0), min(end - seen, gap_start - done))
        if piece[0] < piece[1]:
            kept.append((done + piece[0], done + piece[1]))
        seen += gap_start - done
        done = gap_end
    gone: _Spans = []
    at = 0
    for one, two in [*kept, (len(text), len(text))]:
        if at < one:
            gone.append((at, one))
        at = two
    return gone
