"""Which parts of the chat API a server understands, and the request encoded in those terms.

Servers differ: some know `json_schema`, some only `json_object` (with or without a schema of
its own), some refuse `temperature`, `seed` or `max_tokens`. A `Dialect` says what is sent;
`weaker` finds the next one to try from what the server complained about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ragmeter.scorers.llm.questions import JudgeQuestion

_StructuredMode = Literal["schema", "object_schema", "object", "prompt"]
_STRUCTURED_MODES: tuple[_StructuredMode, ...] = ("schema", "object_schema", "object", "prompt")

# Of a malformed answer, shown to the judge with what is wrong with it.
_SHOWN_CHARS = 2000
_ERROR_CHARS = 500

ChatMessage = dict[str, str]


@dataclass(frozen=True, slots=True)
class ServerComplaint:
    """An error reply to a request that the server understood as far as reading it.

    `fields`: names of parameters that it names in a place of their own (`param`, `loc`);
    `message`: its bounded text, which may quote the prompt. All lower case.
    """

    status: int
    fields: frozenset[str]
    code: str
    message: str

    def about(self, *names: str) -> bool:
        """Whether it is about one of these parameters; the text counts only where no field is
        named."""
        if self.fields:
            return any(
                field == name or field.startswith((f"{name}.", f"{name}["))
                for field in self.fields
                for name in names
            )
        return any(name in self.message for name in names)


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """How to ask. `mode`: where the schema goes: `response_format` of type `json_schema`, of type
    `json_object` with a `schema` beside it (llama-cpp-python), `json_object` alone, or only the
    prompt. The others: whether a parameter is sent, and under which name."""

    mode: _StructuredMode = "schema"
    temperature: bool = True
    seed: bool = True
    completion_tokens: bool = False

    @property
    def in_prompt(self) -> bool:
        """Whether the prompt must say the schema."""
        return self.mode != "schema"

    def parameters(
        self, model: str | None, temperature: float | None, seed: int | None
    ) -> dict[str, Any]:
        """What shapes the answers, as sent. The output limit is not among it: it ends an answer
        and does not change one."""
        out: dict[str, Any] = {"model": model}
        if self.temperature and temperature is not None:
            out["temperature"] = temperature
        if self.seed and seed is not None:
            out["seed"] = seed
        return out

    def weaker(
        self, complaint: ServerComplaint, *, may_change_mode: bool, proven: bool
    ) -> ChatDialect | None:
        """The dialect to try after this complaint; none: it is about something else.

        `proven`: the server has answered in this mode before, so that an error that names nothing
        cannot be about the mode.
        """
        if complaint.status not in (400, 404, 415, 422, 500, 501):
            return None
        if self.temperature and complaint.about("temperature"):
            return replace(self, temperature=False)
        if not self.completion_tokens and complaint.about("max_tokens", "max_completion_tokens"):
            return replace(self, completion_tokens=True)
        if self.seed and complaint.about("seed"):
            return replace(self, seed=False)
        if self.mode == "prompt" or not may_change_mode:
            return None
        known = complaint.about(
            "response_format",
            "response format",
            "json_schema",
            "json_object",
            "structured output",
            "guided",
            "grammar",
        )
        # some servers say only "bad request": before the first answer in this mode the mode is
        # what most likely disturbs them
        silent = not proven and not complaint.fields and complaint.status in (400, 422, 501)
        if not known and not silent:
            return None
        return replace(self, mode=_STRUCTURED_MODES[_STRUCTURED_MODES.index(self.mode) + 1])


def restore_dialect(state: object) -> ChatDialect | None:
    """A dialect from its fields; none where the state is not one."""
    if not isinstance(state, Mapping) or set(state) != set(ChatDialect.__dataclass_fields__):
        return None
    flags = [value for name, value in state.items() if name != "mode"]
    if state["mode"] not in _STRUCTURED_MODES or not all(isinstance(flag, bool) for flag in flags):
        return None
    return ChatDialect(**state)


def first_messages(question: JudgeQuestion[Any], dialect: ChatDialect) -> list[ChatMessage]:
    """The conversation before any answer."""
    system = question.system
    if dialect.in_prompt:
        schema = json.dumps(question.schema, ensure_ascii=False, separators=(",", ":"))
        system = (
            f"{system}\n\nAnswer with one JSON object and nothing else, no code fence, no remark. "
            f"It must satisfy this JSON Schema:\n{schema}"
        )
    return [{"role": "system", "content": system}, {"role": "user", "content": question.user}]


def encode_chat_request(
    schema: Mapping[str, Any],
    dialect: ChatDialect,
    messages: Sequence[ChatMessage],
    parameters: Mapping[str, Any],
    limit: int,
) -> bytes:
    """The body of the request; `limit` in output tokens."""
    body: dict[str, Any] = {**parameters, "messages": messages}
    body["max_completion_tokens" if dialect.completion_tokens else "max_tokens"] = limit
    if dialect.mode == "schema":
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": schema},
        }
    elif dialect.mode == "object_schema":
        body["response_format"] = {"type": "json_object", "schema": schema}
    elif dialect.mode == "object":
        body["response_format"] = {"type": "json_object"}
    # escaped: a lone surrogate in a trace must not stop the encoding
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def correction_messages(answer: str, error: str) -> list[ChatMessage]:
    """A malformed answer and what is wrong with it; only the last one, so that a conversation
    does not grow."""
    return [
        {"role": "assistant", "content": answer[:_SHOWN_CHARS] or "(no answer)"},
        {
            "role": "user",
            "content": f"That answer cannot be used: {error[:_ERROR_CHARS]}. Answer the "
            "question again, with one JSON object that satisfies the schema and nothing else.",
        },
    ]
