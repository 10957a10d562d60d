"""The answer within what a model, a prompt or a framework has put around it.

Marks of chat templates, labels (`Final Answer:`), the steps of an agent before its last word,
fields of DSPy, a fence around all of it, and the text form of a Python object stand in traces whose
sender keeps the raw reply. The user reads, and ragmeter scores, what is inside.
"""

from __future__ import annotations

import ast
import re

# By a character that they have: most answers have none of these, which is quickly seen.
_SIGNS = {
    "<": ("<|", "</s>", "<s>", "<co:", "<end_of_turn>", "<start_of_turn>", "</reply>", "</output>"),
    ">": ("nswer>", "esponse>"),
    "[": ("[/INST]", "[[ ## "),
    ":": ("Answer:", "Assistant:", "AI:"),
    "`": ("```",),
    "~": ("~~~",),
    "=": ("content=",),
}
_TOKEN = r"(?:<\|[a-z_0-9]{2,30}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>)"
_HEAD = re.compile(
    rf"\s*{_TOKEN}(?:\s*{_TOKEN})*\s*(?:(?:assistant|model)\b\s*(?:{_TOKEN}\s*)*)?", re.IGNORECASE
)
_TAIL = re.compile(rf"(?:\s*{_TOKEN})+\s*\Z")
_STEPS = re.compile(r"\s*(?:Question|Thought|Action|Observation|Plan):")
_FINAL = re.compile(r"(?:^|\n)[ \t]*\**Final Answer\**:\**[ \t]*", re.IGNORECASE)
_LABEL = re.compile(
    r"\s*(?:\*\*)?(?:Final Answer|Answer|Assistant|AI|Bot|Chatbot)(?:\*\*)?:(?:\*\*)?"
    r"[ \t]*\n?(?=\S)"
)
_FIELD = re.compile(
    r"\[\[ ## (?P<name>\w{1,40}) ## \]\][ \t]*\n?(?P<text>.*?)(?=\[\[ ## |\Z)", re.DOTALL
)
_FIELD_NAMES = ("answer", "final_answer", "response", "output", "reply", "text")
_FENCE = re.compile(
    r"\s*(?P<sign>```|~~~)[ \t]*(?:markdown|md|text|txt|plaintext|plain)[ \t]*\n(?P<text>.*)\n"
    r"[ \t]*(?P=sign)\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = r"(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_MESSAGE = re.compile(
    rf"\s*content={_QUOTED} (?:additional_kwargs|name|response_metadata|id)=", re.DOTALL
)
_OBJECT = re.compile(
    rf"\s*[A-Z]\w{{1,60}}\((?:\w+=[^'\"]{{0,60}}, )?"
    rf"(?:answer|final_answer|response|output|content|text)={_QUOTED}(?:, \w+=.*)?\)\s*\Z",
    re.DOTALL,
)
# As prompts ask for it: the user is shown what stands between the tags.
_TAGGED = re.compile(
    r"(?:\A|(?<=>)|\n)\s*<(?P<tag>(?:final_|final-)?answer|(?:final_)?response|reply|output)>"
    r"(?P<text>.*?)(?:</(?P=tag)>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# Cohere's tags around the words that a document supports, whose numbers are positions from 0.
_CITED = re.compile(r"<co: ?(?P<numbers>[\d, ]{1,40})>(?P<text>[^<>]{0,2000})</co: ?[\d, ]{1,40}>")
_OBJECT_HEAD = re.compile(r"\s*[A-Z]\w{1,60}\(\w+=")
_MAX_TEXT = 20_000  # what is longer is no answer that somebody reads
_MAX_TAIL = 200  # characters of marks at the end


def read_wrapped_answer(text: str) -> str | None:
    """Return what is inside of an answer with something around it, None for any other answer."""
    if len(text) > _MAX_TEXT:
        return None
    if not _has_sign(text) and not ("=" in text and _OBJECT_HEAD.match(text)):
        return None
    inner = _unwrapped(text)
    return None if inner == text else inner


def _has_sign(text: str) -> bool:
    for character, signs in _SIGNS.items():
        if character in text:
            for sign in signs:
                if sign in text:
                    return True
    return False


def _unwrapped(text: str) -> str:
    for pattern in (_MESSAGE, _OBJECT):
        if match := pattern.match(text):
            return _literal(match["text"], text)
    fields = {match["name"].lower(): match["text"].strip() for match in _FIELD.finditer(text)}
    found = next((fields[name] for name in _FIELD_NAMES if fields.get(name)), None)
    if found is not None:
        return found
    bare = text
    if match := _TAGGED.search(text):
        return match["text"].strip()
    if match := _HEAD.match(bare):
        bare = bare[match.end() :]
    if match := _TAIL.search(bare, max(0, len(bare) - _MAX_TAIL)):
        bare = bare[: match.start()]
    if _STEPS.match(bare):
        finals = list(_FINAL.finditer(bare))
        if finals:
            bare = bare[finals[-1].end() :]
    if (match := _LABEL.match(bare)) and "\nHuman:" not in bare and "\nUser:" not in bare:
        bare = bare[match.end() :]
    if match := _FENCE.match(bare):
        bare = match["text"]
    return _CITED.sub(r"\g<text> [\g<numbers>]", bare) if "<co:" in bare else bare


def _literal(quoted: str, text: str) -> str:
    try:
        value = ast.literal_eval(quoted)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str) and value.strip() else text
