"""Reading the reply of a server: a completion, or what the failure means.

Replies are untrusted: every field is checked for its type, texts are bounded, and nothing of a
reply reaches a log but error codes. An error message may quote the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from agent.judge.attempt import Outcome, Usage
from agent.judge.dialect import Complaint
from agent.judge.fingerprint import Served

__all__ = ["Completion", "Failure", "read_failure", "read_reply"]

# An error text is looked at so far: what is wrong stands at its start, quoted prompts behind.
MESSAGE_CHARS = 600

# More than a whole context of any model: not a count of tokens.
MAX_TOKENS = 100_000_000

TOO_LONG_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
    "request_too_large",
}
# As OpenAI, vLLM, llama.cpp, llama-cpp-python, TGI, Anthropic-like and Gemini-like servers word it.
TOO_LONG = re.compile(
    r"context (length|window|size)|maximum (context|input|model) (length|tokens)"
    r"|max_(model_len|seq_len|input_tokens)"
    r"|(prompt|input|messages|request)[\w ()]* (is|are) too long"
    r"|exceeds? the (available|maximum|model)|too many (input )?tokens|input_tokens"
    r"|(tokens|inputs)\D{0,20}(must|cannot|can not)\D{0,20}(<=|exceed)"
)
REFUSED = re.compile(r"content[_ ]?(filter|policy|management)|moderation|flagged|safety")

# Out of money or quota: 429 by status, and no pause helps.
QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"}


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion as served. `text` is the answer, empty where there is none."""

    text: str
    cut_off: bool
    refused: bool
    served: Served
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a completion. `detail`: for the log; from us, or a checked code of the
    server's. `complaint`: where a parameter may be to blame."""

    outcome: Outcome
    detail: str
    complaint: Complaint | None = field(default=None, compare=False)
    hopeless: bool = False
    """The same for every call until someone changes something: key, quota, address."""


def read_reply(status: int, body: bytes) -> Completion | Failure:
    """What a reply means."""
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        decoded = None
    if 200 <= status < 300:
        return _completion(decoded)
    return read_failure(status, decoded, body)


def _completion(reply: Any) -> Completion | Failure:
    if isinstance(reply, dict) and "choices" not in reply and reply.get("error"):
        # some gateways send the failure of the server behind them with status 200
        error = reply["error"]
        code = error.get("code") if isinstance(error, dict) else None
        inner = code if isinstance(code, int) and 400 <= code <= 599 else 502
        return read_failure(inner, reply, b"")
    choice = _first(reply.get("choices")) if isinstance(reply, dict) else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(choice, dict):
        return Failure("server_error", "the reply is no chat completion")
    finish = choice.get("finish_reason")
    refusal = message.get("refusal")
    return Completion(
        text=_text(message.get("content")),
        cut_off=finish == "length",
        refused=finish == "content_filter" or (isinstance(refusal, str) and bool(refusal.strip())),
        served=Served.from_reply(reply),
        usage=_usage(reply.get("usage")),
    )


def _first(items: Any) -> Any:
    return items[0] if isinstance(items, list) and items else None


def _text(content: Any) -> str:
    """The answer: a text, or the text parts of a list of parts (thoughts are parts too)."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"]
            for part in content
            if isinstance(part, dict)
            and part.get("type") in ("text", "output_text")
            and isinstance(part.get("text"), str)
        )
    return ""


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if _is_count(tokens_in) and _is_count(tokens_out):
        return Usage(tokens_in, tokens_out)
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_TOKENS


def read_failure(status: int, reply: Any, body: bytes) -> Failure:
    """What a status other than success means; `reply`: the body decoded, None where it is no
    JSON."""
    if status == 413:
        return Failure("too_long", "status 413")
    complaint = _complaint(status, reply, body)
    named = f"status {status}" + (f" ({complaint.code})" if complaint.code else "")
    if status == 429:
        return Failure("rate_limited", named, hopeless=complaint.code in QUOTA_CODES)
    if REFUSED.search(complaint.code) or (status == 403 and REFUSED.search(complaint.message)):
        return Failure("refused", named)
    if complaint.code in TOO_LONG_CODES or (
        status in (400, 422, 500) and TOO_LONG.search(complaint.message)
    ):
        return Failure("too_long", named)
    if status in (401, 402, 403, 404, 405) or 300 <= status < 400:
        return Failure("denied", named, complaint, hopeless=True)
    if status in (408, 409) or status >= 500:
        return Failure("server_error", named, complaint)
    return Failure("client_error", named, complaint)


def _complaint(status: int, reply: Any, body: bytes) -> Complaint:
    error: Any = reply
    if isinstance(reply, Mapping):
        error = reply.get("error", reply)
    code, message, fields = "", "", set[str]()
    if isinstance(error, Mapping):
        for key in ("code", "type"):
            if isinstance(error.get(key), str) and not code:
                code = error[key]
        for key in ("message", "detail", "error"):
            if isinstance(error.get(key), str) and not message:
                message = error[key]
        fields = set(_fields(error))
    elif isinstance(error, str):
        message = error
    elif reply is None:
        message = body[: 4 * MESSAGE_CHARS].decode("utf-8", "replace")
    # a code is a word; anything else could be text of the trace
    code = code.lower() if re.fullmatch(r"[\w.-]{1,60}", code) else ""
    return Complaint(status, frozenset(fields), code, message[:MESSAGE_CHARS].lower())


def _fields(error: Mapping[str, Any]) -> Iterator[str]:
    """Parameters that an error names: `param`, or the `loc` of FastAPI's validation."""
    param = error.get("param")
    if isinstance(param, str) and param:
        yield param[:100].lower()
    inner = error.get("message")
    for holder in (error, inner if isinstance(inner, Mapping) else {}):
        details = holder.get("detail")
        for item in details[:20] if isinstance(details, list) else ():
            location = item.get("loc") if isinstance(item, Mapping) else None
            if isinstance(location, list):
                names = [part for part in location if isinstance(part, str) and part != "body"]
                yield ".".join(names)[:100].lower()
