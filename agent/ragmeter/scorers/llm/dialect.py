"""The parts of the chat API that a server understands, and requests encoded in those terms.

Servers differ: some know `json_schema`, some only `json_object` (with or without a schema of its
own), some refuse `temperature`, `seed` or `max_tokens`. A `ChatDialect` says what is sent;
`ChatDialect.weaker` finds the next one to try after a complaint of the server.

Local servers take the tokens of a chat template for real wherever they stand, and a judge may copy
what it read into its answer. So `clean_text` breaks such marks in every text that others wrote.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from ragmeter.core.folded_text import INVISIBLE

_StructuredMode = Literal["schema", "object_schema", "object", "prompt"]
_STRUCTURED_MODES: tuple[_StructuredMode, ...] = get_args(_StructuredMode)

# Characters of a malformed answer, and of its error, that the judge sees again.
_MAX_ANSWER_CHARS = 2000
_MAX_ERROR_CHARS = 500

# Texts in complaints about structured output.
_FORMAT_NAMES = (
    "response_format",
    "response format",
    "json_schema",
    "json_object",
    "structured output",
    "guided",
    "grammar",
)

ChatMessage = dict[str, str]

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_ASCII_INVISIBLE = bytes(n for n in range(128) if _INVISIBLE.match(chr(n)))
# Joiners in a row, and those beside a sign of Latin, Greek or Cyrillic writing: they join nothing.
_JOINER = "[\u200c\u200d]"
_JOINERS = re.compile(f"(?<={_JOINER}){_JOINER}")
_IDLE_JOINERS = re.compile(
    f"{_JOINER}(?=[\x20-\u052f\uff01-\uff5e])|(?<=[\x20-\u052f\uff01-\uff5e]){_JOINER}"
)
# What marks consist of; other punctuation has no business in the table: texts are full of it.
_SIGNS = frozenset("<|>[]`~/_" + string.ascii_letters + string.digits)
# Signs that people take for ASCII: full width, mathematical and circled letters by their Unicode
# decomposition, then brackets, bars, and letters of Cyrillic, Greek, Cherokee and Lisu by eye.
_LOOK_ALIKES = {
    code: plain
    for first, last in ((0x249C, 0x24E9), (0xFF01, 0xFF5E), (0x1D400, 0x1D7FF))
    for code in range(first, last + 1)
    if (plain := unicodedata.normalize("NFKC", chr(code))) in _SIGNS
} | str.maketrans(
    "‹〈⟨❮❰˂ᐸ◁⊲›〉⟩❯❱˃ᐳ▷⊳⁅❲〔【⟦⁆❳〕】⟧│┃∣❘ǀ¦⁄∕∖ˋ‵∼〜"
    "АВЕЅІЈКМНОРСТУХҮабсԁеһіјӏкоԛрѕтԝхуѵпгмΑΒΕΖΗΙΚΜΝΟΡΤΥΧαοινκρτυηıɡᎠᎬᏀꓓꓰꓠ",
    "<<<<<<<<<>>>>>>>>>[[[[[]]]]]||||||///``~~"
    "ABESIJKMHOPCTYXYabcdehijlkoqpstwxyvnrmABEZHIKMNOPTYXaoivkptunigDEGDEN",
)
# Blocks that hold all of them: quicker than the table where a text has none.
_LOOK_ALIKE = re.compile(
    "[\xa6\u0131\u01c0\u0261-\u052f\u13a0-\u1490\u2030-\u33ff\ua4d0-\ua4ff\uff01-\U0001d7ff]"
)
# Words that are tokens of a template, or of thoughts and tool calls, between angle brackets: of
# Llama, Mistral, Qwen, Gemma, Phi, DeepSeek, GLM, MiniMax, SmolVLM, Seed, Granite, Kimi,
# Nemotron, Ling and their kin.
_TAG = (
    r"/?(?:s|bos|eos|pad|unk|cls|sep|mask|sop|eop|user|human|assistant|system|developer|image|video"
    r"|audio|(?:start|end)_of_\w+|\w+_(?:soft_)?token|fake_token\w*|seed:\w+|unused\d+|0x[0-9a-f]{2}"
    r"|(?:special|reserved)_\d+|role|think\w*|thoughts?|reason\w*|reflection|scratchpad|analysis"
    r"|answer|response|tool\w*|available_tools|arg_\w+|function\w*|invoke|parameters?)"
    r"(?:\s*[=>/:]|\s+\w+=)"
)
_SQUARE = (
    r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+|IMG\w*|THINK\w*|ARGS|CALL_ID|MODEL_SETTINGS"
    r"|PREFIX|MIDDLE|SUFFIX|AUDIO|BEGIN_\w+|TRANSCRIBE|[GS]?MASK|CLS|SEP|PAD|UNK|[BE]OS"
    r"|SYSTEM|USER|ASSISTANT|CONTROL_\d+)\]"
)
# A space after the first sign leaves such a mark readable and mere text; so with code fences and
# the fences of our prompts, whatever letters stand in them.
# Each alternative begins with a plain sign: the engine then looks for these signs alone.
_MARKS = re.compile(
    rf"<(?=\||</?SYS>>|{_TAG})|\|(?=[>\]])|`(?=``)|~(?=~~)|\](?=<\]|~[!b])"
    rf"|\[(?=\||>\[|e~\[|\[\s*[^\W\d_]|{_SQUARE})",
    re.IGNORECASE,
)


def clean_text(text: str) -> str:
    """Return the text as people see it, with nothing that a server or judge takes for more."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():  # on bytes in C, many times quicker: cleaning is most of a prompt's work
        folded = text = text.encode().translate(None, _ASCII_INVISIBLE).decode()
    else:
        for line_break in "\x85\u2028\u2029":
            text = text.replace(line_break, "\n")
        text = _INVISIBLE.sub("", text)
        if "\u200c" in text or "\u200d" in text:
            text = _IDLE_JOINERS.sub("", _JOINERS.sub("", text))
        # sign by sign, so that places agree
        folded = text.translate(_LOOK_ALIKES) if _LOOK_ALIKE.search(text) else text
    begun = 0
    pieces = []
    for mark in _MARKS.finditer(folded):
        pieces.append(text[begun : mark.end()])
        begun = mark.end()
    return " ".join([*pieces, text[begun:]])


@dataclass(frozen=True, slots=True)
class ServerComplaint:
    """An error reply to a request that the server could parse.

    `fields` are parameters that the reply names outside its text (`param`, `loc`). `message` is
    its bounded text, which may quote the prompt. All are in lower case but `said`, the text as it
    came.
    """

    status: int
    fields: frozenset[str]
    code: str
    message: str
    said: str = ""

    def about(self, *names: str) -> bool:
        """Return whether it concerns a parameter; the text counts where it names no field."""
        if not self.fields:
            return any(name in self.message for name in names)
        return any(
            field == name or field.startswith((f"{name}.", f"{name}["))
            for field in self.fields
            for name in names
        )

    @property
    def names_nothing(self) -> bool:
        """Whether it may be about the form of the question and does not say so."""
        return not self.fields and self.status in (400, 422, 501) and not self.about(*_FORMAT_NAMES)


# Seed of every call, where the server takes one: the same question then has the same answer more
# often, and any number does.
SEED = 42


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """The way in which a server is asked.

    `mode` is the place of the schema: `response_format` of type `json_schema`; of type
    `json_object` with a `schema` beside it (llama-cpp-python); `json_object` alone, with the
    schema in the prompt; or only the prompt. The flags say whether a parameter is sent, and
    `completion_tokens` that the output limit is called `max_completion_tokens`.
    """

    mode: _StructuredMode = "schema"
    temperature: bool = True
    seed: bool = True
    completion_tokens: bool = False
    reasoning_effort: bool = True

    def parameters(
        self, model: str | None, temperature: float | None, reasoning_effort: str | None = None
    ) -> dict[str, Any]:
        """Return the parameters that shape answers; the output limit only ends them."""
        out: dict[str, Any] = {"model": model}
        if self.temperature and temperature is not None:
            out["temperature"] = temperature
        if self.seed:
            out["seed"] = SEED
        if self.reasoning_effort and reasoning_effort is not None:
            out["reasoning_effort"] = reasoning_effort
        return out

    def weaker(
        self, complaint: ServerComplaint, *, may_change_mode: bool, proven: bool
    ) -> ChatDialect | None:
        """Return the dialect to try after a complaint, or None where it concerns something else.

        Args:
            complaint: The error reply.
            may_change_mode: The settings leave the mode to us.
            proven: The server has answered in this mode before, so an error that names nothing
                cannot concern the mode.
        """
        if complaint.status not in (400, 404, 415, 422, 500, 501):
            return None
        if self.temperature and complaint.about("temperature"):
            return replace(self, temperature=False)
        if not self.completion_tokens and complaint.about("max_tokens", "max_completion_tokens"):
            return replace(self, completion_tokens=True)
        if self.seed and complaint.about("seed"):
            return replace(self, seed=False)
        if self.reasoning_effort and complaint.about("reasoning_effort", "reasoning.effort"):
            return replace(self, reasoning_effort=False)
        if self.mode == "prompt" or not may_change_mode:
            return None
        # Some servers say only "bad request". Before the first answer in this mode, the mode is
        # the most likely cause.
        silent = not proven and complaint.names_nothing
        if not silent and not complaint.about(*_FORMAT_NAMES):
            return None
        return replace(self, mode=_STRUCTURED_MODES[_STRUCTURED_MODES.index(self.mode) + 1])


def restore_dialect(state: object) -> ChatDialect | None:
    """Return a dialect from its fields, or None where the state is not one."""
    if not isinstance(state, Mapping) or set(state) != set(ChatDialect.__dataclass_fields__):
        return None
    flags = [value for name, value in state.items() if name != "mode"]
    if state["mode"] not in _STRUCTURED_MODES or not all(isinstance(flag, bool) for flag in flags):
        return None
    return ChatDialect(**state)


def first_messages(
    system: str, user: str, schema: Mapping[str, Any], dialect: ChatDialect
) -> list[ChatMessage]:
    """Return the conversation before any answer; unless a parameter does, it holds the schema."""
    if dialect.mode != "schema":
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        system = (
            f"{system}\n\nAnswer with one JSON object and nothing else, no code fence, no remark. "
            f"It must satisfy this JSON Schema:\n{text}"
        )
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def encode_chat_request(
    schema: Mapping[str, Any],
    dialect: ChatDialect,
    messages: Sequence[ChatMessage],
    parameters: Mapping[str, Any],
    max_output_tokens: int,
) -> bytes:
    """Return the body of a request."""
    limit = "max_completion_tokens" if dialect.completion_tokens else "max_tokens"
    body: dict[str, Any] = {**parameters, "messages": messages, limit: max_output_tokens}
    if dialect.mode == "schema":
        strict = {"name": "verdict", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": strict}
    elif dialect.mode == "object_schema":
        body["response_format"] = {"type": "json_object", "schema": schema}
    elif dialect.mode == "object":
        body["response_format"] = {"type": "json_object"}
    # escaped: a lone surrogate in a trace must not stop the encoding
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def correction_messages(answer: str, error: str) -> list[ChatMessage]:
    """Return a malformed answer and its error; only the last one, so conversations stay short.

    Both may quote a trace.
    """
    quoted = clean_text(answer[:_MAX_ANSWER_CHARS])
    problem = clean_text(error[:_MAX_ERROR_CHARS])
    return [
        {"role": "assistant", "content": quoted or "(no answer)"},
        {
            "role": "user",
            "content": f"That answer cannot be used: {problem}. Answer the "
            "question again, with one JSON object that satisfies the schema and nothing else.",
        },
    ]
