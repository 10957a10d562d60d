"""Read the reply of a chat server: a completion, or the meaning of its failure.

Replies are untrusted: every field is checked for its type, texts are bounded, and nothing of a
reply reaches a log but error codes. An error message may quote the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ragmeter.scorers.llm.billing import AttemptOutcome, TokenUsage
from ragmeter.scorers.llm.dialect import ServerComplaint
from ragmeter.scorers.llm.served_model import ServedModel

# Only the start of an error text is read: it says what is wrong, and quoted prompts follow.
_MESSAGE_CHARS = 600

# More than the context of any model: not a count of tokens.
_MAX_TOKENS = 100_000_000

_TOO_LONG_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
    "request_too_large",
}
# As OpenAI, vLLM, llama.cpp, llama-cpp-python, TGI, Anthropic-like and Gemini-like servers word it.
_TOO_LONG = re.compile(
    r"context (length|window|size)|maximum (context|input|model) (length|tokens)"
    r"|max_(model_len|seq_len|input_tokens)"
    r"|(prompt|input|messages|request)[\w ()]* (is|are) too long"
    r"|exceeds? the (available|maximum|model)|too many (input )?tokens|input_tokens"
    r"|(tokens|inputs)\D{0,20}(must|cannot|can not)\D{0,20}(<=|exceed)"
)
_REFUSED = re.compile(r"content[_ ]?(filter|policy|management)|moderation|flagged|safety")

# Out of money or quota: 429 by status, and no pause helps.
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"}


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """A completion as served; `text` is the answer, empty where there is none."""

    text: str
    cut_off: bool
    refused: bool
    served: ServedModel
    usage: TokenUsage | None


@dataclass(slots=True)
class FailedAttempt:
    """An attempt that gave no answer.

    `detail` is for the log: a text of ours, or a checked code of the server's. `complaint`: a
    parameter may be to blame. `hopeless`: every call fails the same way until someone changes key,
    quota or address. `status` and `retry_after` (seconds) are those of the reply.
    """

    outcome: AttemptOutcome
    detail: str
    complaint: ServerComplaint | None = field(default=None, compare=False)
    hopeless: bool = False
    status: int = 0
    retry_after: float | None = None


def read_chat_reply(status: int, body: bytes) -> ChatCompletion | FailedAttempt:
    """Return the completion in a reply, or the reason why there is none."""
    decoded = decode_json(body)
    return _completion(decoded) if 200 <= status < 300 else read_error_reply(status, decoded, body)


def decode_json(body: bytes) -> Any:
    """Return the decoded body, or None where it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _completion(reply: Any) -> ChatCompletion | FailedAttempt:
    if isinstance(reply, dict) and "choices" not in reply and reply.get("error"):
        # some gateways send the failure of the server behind them with status 200
        error = reply["error"]
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code <= 599 else 502
        return read_error_reply(status, reply, b"")
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(choice, dict):
        return FailedAttempt("server_error", "the reply is no chat completion")
    finish = choice.get("finish_reason")
    refusal = message.get("refusal")
    return ChatCompletion(
        text=_text(message.get("content")),
        cut_off=finish == "length",
        refused=finish == "content_filter" or (isinstance(refusal, str) and bool(refusal.strip())),
        served=ServedModel.from_reply(reply),
        usage=_usage(reply.get("usage")),
    )


def _text(content: Any) -> str:
    # a text, or a list of items, of which thoughts are some
    if isinstance(content, str):
        return content
    items = (
        [item for item in content if isinstance(item, dict)] if isinstance(content, list) else ()
    )
    texts = [item.get("text") for item in items if item.get("type") in ("text", "output_text")]
    return "".join(text for text in texts if isinstance(text, str))


def _usage(usage: Any) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    tokens_in = usage.get("prompt_tokens")
    tokens_out = usage.get("completion_tokens")
    if _is_count(tokens_in) and _is_count(tokens_out):
        return TokenUsage(tokens_in, tokens_out)
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_TOKENS


def read_error_reply(status: int, reply: Any, body: bytes) -> FailedAttempt:
    """Return the meaning of a status other than success.

    `reply` is the decoded body, None where it is no JSON.
    """
    if status == 413:
        return FailedAttempt("too_long", "status 413")
    complaint = _complaint(status, reply, body)
    code = complaint.code
    message = complaint.message
    detail = f"status {status}" + (f" ({code})" if code else "")
    if status == 429:
        return FailedAttempt("rate_limited", detail, hopeless=code in _QUOTA_CODES)
    if _REFUSED.search(code) or (status == 403 and _REFUSED.search(message)):
        return FailedAttempt("refused", detail)
    if code in _TOO_LONG_CODES or (status in (400, 422, 500) and _TOO_LONG.search(message)):
        return FailedAttempt("too_long", detail)
    if status in (401, 402, 403, 404, 405) or 300 <= status < 400:
        return FailedAttempt("denied", detail, complaint, hopeless=True)
    server_error = status in (408, 409) or status >= 500
    return FailedAttempt("server_error" if server_error else "client_error", detail, complaint)


def _complaint(status: int, reply: Any, body: bytes) -> ServerComplaint:
    error: Any = reply.get("error", reply) if isinstance(reply, Mapping) else reply
    code = ""
    message = ""
    fields = frozenset[str]()
    if isinstance(error, Mapping):
        code = _first_text(error, "code", "type")
        message = _first_text(error, "message", "detail", "error")
        fields = frozenset(_named_fields(error))
    elif isinstance(error, str):
        message = error
    elif reply is None:
        message = body[: 4 * _MESSAGE_CHARS].decode("utf-8", "replace")
    # a code is a word; anything else could be text of the trace
    code = code.lower() if re.fullmatch(r"[\w.-]{1,60}", code) else ""
    return ServerComplaint(status, fields, code, message[:_MESSAGE_CHARS].lower())


def _first_text(error: Mapping[str, Any], *keys: str) -> str:
    return next((text for key in keys if isinstance(text := error.get(key), str) and text), "")


def _named_fields(error: Mapping[str, Any]) -> Iterator[str]:
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
                names = [name for name in location if isinstance(name, str) and name != "body"]
                yield ".".join(names)[:100].lower()
