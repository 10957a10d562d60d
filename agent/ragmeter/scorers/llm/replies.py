"""Read the reply of a chat server: a completion, or the meaning of its failure.

Replies are untrusted: every field is checked for its type, texts are bounded, and of a reply only
error codes and the start of its message reach a log (`server_words`), as it may quote the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from ragmeter.answers.thoughts import end_of_leading_thoughts
from ragmeter.core.retries import bounded_pause, read_duration
from ragmeter.scorers.llm.billing import AttemptOutcome, TokenUsage
from ragmeter.scorers.llm.dialect import ServerComplaint
from ragmeter.scorers.llm.other_apis import find_other_api
from ragmeter.scorers.llm.served_model import ServedModel
from ragmeter.scorers.llm.server_words import page_text, printable_words
from ragmeter.scorers.llm.streamed_replies import join_stream

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
    r"context (length|window|size)"
    r"|max(imum)? (context|input|model|prompt) (length|tokens|characters)"
    r"|max_(model_len|seq_len|input_tokens)"
    r"|(prompt|input|messages|request)[\w ()]* (is|are) too long"
    r"|exceed(s|ed)? (the (available|maximum|model)|(the )?context limit|model token limit|max)"
    r"|too many (input )?tokens|input_tokens|range of input length|must be at least 1, got -\d"
    r"|(tokens|inputs)\D{0,20}(must|cannot|can not)\D{0,20}(<=|exceed)"
    r"|(input|prompt) token count\b.{0,40}\bexceeds"
    r"|context_?window_?exceeded|input tokens exceed"
)
_REFUSED = re.compile(
    r"content[_ ]?(filter|policy|management)|responsibleai|moderation|flagged|safety|guardrail"
    r"|prohibited_content|blocklist|data_?inspection_?failed|sensitive_?content|policy_?violation"
    r"|hooks_failed"
)
# In the text of another error than 403, which may quote the prompt: only what no prompt says.
_REFUSED_BY_GATEWAY = re.compile(
    r"content_?policy_?violation|content_filter(ed)?\b|responsible_?ai_?policy"
    r"|content management policy|prohibited_content|guardrail_intervened"
    r"|(blocked|rejected|filtered) (by|due to) [\w' ]{0,40}(guardrail|safety|content|moderation)"
    r"|violated guardrail policy|\A(prompt|response) blocked due to security"
    r"|flagged as (potentially )?violating (our )?usage polic"
    r"|blocked entity detected: \w{1,40} by guardrail|bad request: prompt pattern is blocked"
    r"|content exists risk|put data may contain inappropriate content"
    r"|检测到输入或生成内容可能包含不安全或敏感内容"
)


_COMMENTS = re.compile(rb"\s*(?::[^\r\n]*(?:\s+|\Z))+")

# Of all that a refusal behind a gateway is wrapped in: levels and fields that are looked at.
_DEEPEST = 5
_MOST_CODES = 60
_CODE_KEYS = ("code", "type", "__type", "status", "reason", "error_code")

# How a completion ends that is a refusal, has no room or is none, as servers and gateways name it
# and as vendors will: "content_filter: SAFETY", "IMAGE_SAFETY", "model_context_window_exceeded".
_ENDS_REFUSED = re.compile(
    r"content.?filter|safety|refus|prohibited|block|spii|recitation|guardrail|sensitive|policy|toxic"
    r"|moderat|censor"
)
_ENDS_CUT_OFF = re.compile(r"length|max.?(output.?)?tokens|token.?limit|context.?window|incomplete")
_ENDS_FAILED = re.compile(
    r"error|fail|abort|cancel|timeout|interrupt|overload|unexpected|insufficient|malformed"
    r"|repetition|language|other\Z|time.?limit|shut.?down|evict|preempt|killed|unavailable"
)

# Codes that say "too many requests", whatever the status.
_THROTTLED_CODES = {"throttlingexception", "toomanyrequestsexception", "rate_limit_exceeded"}

# "This model supports at most 16384 completion tokens"
_MOST_OUTPUT = re.compile(
    r"(?:at most|maximum(?: value)?(?: of| is| for \S{1,40} is)?|less than or equal to|<=|limit of"
    r"|[\[(]1,) ?(\d{2,7})(?: (?:completion|output) tokens)?"
)

# Out of money or quota: 429 by status, and no pause helps.
_QUOTA_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "quota_exceeded",
    "exceeded_current_quota_error",
    "arrearage",
    "budget_exceeded",
}

# A bad key or an account that is closed, with status 400: by a code, or how the message begins.
_ACCOUNT_CODES = {"api_key_invalid", "account_deactivated"}
# A model that is not served, with status 400.
_MODEL_CODES = {
    "model_not_found",
    "model_decommissioned",
    "model_not_supported",
    "model_not_available",
    "unknown_model",
    "invalid_model",
}
_ACCOUNT = re.compile(
    r"(api key not valid|invalid api key|(your )?account \S{1,60} is suspended"
    r"|no route for that uri)"
)
_OUT_OF_MONEY = re.compile(
    r"\A((your )?credit balance is too low|budget has been exceeded"
    r"|insufficient (balance|credits?|funds)\b)"
    r"|used all available credits|(reached|exceeded) (its|your) (monthly )?spending limit"
    r"|余额不足|欠费"
)
# The client looks for these in a refusal alone: another error may quote the prompt.
_NO_CREDITS = re.compile(
    r"\b(no|any|more|insufficient|add|purchase) (\w{1,20} )?(credits?|funds)\b"
    r"|credits? (limit|(have been |has been |are |is )?(exceeded|exhausted|depleted|used up))"
)
# In words alone, where a gateway has no status of its own for it
_THROTTLED = re.compile(r"\A(\w{1,20} ){0,3}rate limit|too many requests|qps request limit")
# "Please try again in 1m12.3s", "Please retry after 23 seconds"
_PAUSE = re.compile(
    r"\b(?:try again|retry) (?:in|after) ((?:\d{1,6}(?:\.\d{1,12})? ?[a-z]{1,12}){1,4})"
)
_PAUSE_KEYS = ("retryDelay", "retry_delay", "retry_after", "retryAfter", "retry_after_seconds")
# The model wrote what is no JSON, which the next attempt may not do.
_GENERATION_CODES = {"json_validate_failed"}
_ENVELOPES = ("data", "result", "response", "body")
_BEHIND = "provider returned error"  # all that OpenRouter says itself


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """A completion as served; `text` is the answer, empty where there is none."""

    text: str
    cut_off: bool
    refused: bool
    thinks: bool  # it spent tokens on thoughts
    served: ServedModel
    usage: TokenUsage | None


@dataclass(slots=True)
class FailedAttempt:
    """An attempt that gave no answer.

    `detail` is for the log: a text of ours, or a checked code of the server's. `words` are the
    server's own, bounded and printable; they may quote the prompt. `complaint`: a parameter may be
    to blame. `most_output`: the most output tokens that the server says it gives. `hopeless`:
    every call fails the same way until someone changes key, quota or address. `unpaid`: the account
    has no money or quota left. `status` and `retry_after` (seconds) are those of the reply.
    `usage`: the tokens that it counts all the same.
    """

    outcome: AttemptOutcome
    detail: str
    complaint: ServerComplaint | None = field(default=None, compare=False)
    hopeless: bool = False
    unpaid: bool = field(default=False, compare=False)
    words: str = field(default="", compare=False)
    most_output: int | None = field(default=None, compare=False)
    status: int = 0
    retry_after: float | None = None
    usage: TokenUsage | None = field(default=None, compare=False)


def read_chat_reply(status: int, body: bytes) -> ChatCompletion | FailedAttempt:
    """Return the completion in a reply, or the reason why there is none."""
    decoded = decode_json(body)
    if decoded is None and _is_stream(body):
        decoded = join_stream(body)
    if 200 <= status < 300:
        found = _completion(decoded, body)
        if isinstance(found, FailedAttempt) and isinstance(decoded, dict):
            found.usage = _usage(decoded.get("usage"))  # no verdict, and paid for
        return found
    return read_error_reply(status, decoded, body)


def decode_json(body: bytes) -> Any:
    """Return the decoded body, or None where it is no JSON.

    Gateways send comments of server-sent events (`: keep-alive`) before it, while a model thinks.
    """
    comments = _COMMENTS.match(body)
    try:
        return json.loads(body[comments.end() :] if comments else body)
    except (ValueError, RecursionError):
        return None


def _is_stream(body: bytes) -> bool:
    """Return whether a reply consists of server-sent events."""
    comments = _COMMENTS.match(body)
    return body.startswith((b"data:", b"event:", b"id:"), comments.end() if comments else 0)


def _completion(reply: Any, body: bytes) -> ChatCompletion | FailedAttempt:
    if isinstance(reply, list) and len(reply) == 1:  # Gemini's endpoint wraps errors in an array
        reply = reply[0]
    reply = _unwrapped(reply)
    if isinstance(reply, dict) and not reply.get("choices") and (failed := _failed_by_code(reply)):
        return failed
    if isinstance(reply, dict) and _fails(reply):
        # some gateways send the failure of the server behind them with status 200
        return _failed_behind(reply)
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = _first_choice(choices) if isinstance(choices, list) else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(choice, dict):
        return _no_completion(reply, body)
    given = choice.get("finish_reason")
    finish = given.lower() if isinstance(given, str) else ""
    for holder in (choice, message):
        if holder.get("error"):
            return _failed_behind(holder)
    refusal = message.get("refusal") or _refusal_part(message.get("content"))
    refused = bool(_ENDS_REFUSED.search(finish) or (isinstance(refusal, str) and refusal.strip()))
    cut_off = not refused and bool(_ENDS_CUT_OFF.search(finish))
    native = choice.get("native_finish_reason")  # of a gateway's provider
    if not refused and not cut_off:  # whatever was written until then
        for word in (finish, native.lower() if isinstance(native, str) else ""):
            if _ENDS_FAILED.search(word):
                detail = f"the answer ended with {_code_word(word) or 'a failure'}"
                return FailedAttempt("server_error", detail)
    return ChatCompletion(
        text=_text(message.get("content")) or ("" if cut_off else _misplaced(message)),
        cut_off=cut_off,
        refused=refused,
        thinks=_thinks(message, reply.get("usage")),
        served=ServedModel.from_reply(reply),
        usage=_usage(reply.get("usage")),
    )


def _unwrapped(reply: Any) -> Any:
    """Return the completion that a gateway has put into an envelope of its own."""
    if isinstance(reply, dict) and not reply.get("choices"):
        for key in _ENVELOPES:
            inner = reply.get(key)
            if isinstance(inner, dict) and isinstance(inner.get("choices"), list):
                return inner
    return reply


def _first_choice(choices: Sequence[Any]) -> Any:
    """Return the choice with index 0, which need not stand first."""
    numbered = (one for one in choices if isinstance(one, dict) and one.get("index") == 0)
    return next(numbered, choices[0] if choices else None)


def _fails(reply: Mapping[str, Any]) -> bool:
    """Return whether a reply names an error: with choices, too, where it came in the middle."""
    error = reply.get("error")
    if not reply.get("choices"):
        return bool(error)
    if isinstance(error, Mapping):
        return bool(_first_text(error, "message", "type") or error.get("code"))
    return isinstance(error, str) and bool(error.strip())


def _no_completion(reply: Any, body: bytes) -> FailedAttempt:
    """Return the failure of a reply with status 200 that is something else, and what it says."""
    start = body[:_MESSAGE_CHARS].lstrip(b"\xef\xbb\xbf \t\r\n")
    if reply is None and _is_stream(body):
        detail = (
            "the reply is a stream of no chat completion: turn streaming off, and check base_url"
        )
        return FailedAttempt("denied", detail, hopeless=True)
    if _is_blocked(reply):
        return FailedAttempt("refused", "the prompt was blocked")
    if other := _other_api(reply):
        return other
    what = "no chat completion"
    if reply is None and start.startswith((b"{", b"[")):
        # its start may be that of an answer, of which no log tells
        return FailedAttempt("server_error", "the reply is broken JSON")
    if start.startswith(b"<"):  # of a login, a proxy or another port
        what = "a web page: check base_url, and what stands before the judge"
    words = printable_words(_complaint(200, reply, body).said)
    return FailedAttempt("server_error", f"the reply is {what}", words=words)


def _other_api(reply: Any) -> FailedAttempt | None:
    """Return the failure of a reply of another API than that of chat completions, if it is one."""
    found = find_other_api(reply)
    if found is None:
        return None
    api, holder = found
    finish = holder.get(api.end)
    if isinstance(finish, str) and _ENDS_REFUSED.search(finish.lower()):
        return FailedAttempt("refused", "by the model or a filter")
    detail = f"the reply is of {api.name}, not of chat completions"
    return FailedAttempt("denied", detail, hopeless=True)


def _is_blocked(reply: Any) -> bool:
    """Return whether a reply without a choice says that a filter has blocked the prompt."""
    if not isinstance(reply, dict):
        return False
    feedback = reply.get("promptFeedback") or reply.get("prompt_feedback")
    if isinstance(feedback, dict) and (feedback.get("blockReason") or feedback.get("block_reason")):
        return True
    results = reply.get("prompt_filter_results")
    for result in results[:_MOST_CODES] if isinstance(results, list) else ():
        filters = result.get("content_filter_results") if isinstance(result, dict) else None
        for one in filters.values() if isinstance(filters, dict) else ():
            if isinstance(one, dict) and one.get("filtered") is True:
                return True
    return False


def _failed_by_code(reply: Mapping[str, Any]) -> FailedAttempt | None:
    """Return the failure of a reply with status 200 whose number says that it is one.

    MiniMax has it in `base_resp`, Baidu and Zhipu beside their words.
    """
    holder = reply.get("base_resp")
    holder = holder if isinstance(holder, Mapping) else reply
    number = holder.get("status_code", holder.get("error_code", holder.get("code")))
    words = _first_text(holder, "status_msg", "error_msg", "msg")
    if type(number) is not int or number in (0, 200) or not words:
        return None
    return read_error_reply(502, {"error": {"message": words}}, b"")


def _failed_behind(holder: Mapping[str, Any]) -> FailedAttempt:
    """Return the failure of a provider that a gateway passes on in a reply with status 200."""
    error = holder["error"]
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and re.fullmatch(r"[45]\d\d", code):
        code = int(code)
    status = code if type(code) is int and 400 <= code <= 599 else 502
    return read_error_reply(status, {"error": error}, b"")


def _thinks(message: Mapping[str, Any], usage: Any) -> bool:
    """Return whether tokens went into thoughts, as the counts or the separate fields say."""
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    counts = [
        holder.get("reasoning_tokens") for holder in (details, usage) if isinstance(holder, dict)
    ]
    if any(_is_count(count) and count > 0 for count in counts):
        return True
    if isinstance(usage, dict) and _is_count(usage.get("total_tokens")):
        told = _usage(usage)  # Gemini counts thoughts in the sum alone
        if told is not None and usage["total_tokens"] > told.input_tokens + told.output_tokens:
            return True
    content = message.get("content")
    if isinstance(content, str) and end_of_leading_thoughts(content.lstrip()):
        return True
    if isinstance(content, list) and any(
        isinstance(item, dict) and item.get("type") in ("thinking", "reasoning") for item in content
    ):
        return True
    return any(message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))


def _refusal_part(content: Any) -> Any:
    """Return the refusal among the items of a content."""
    items = content if isinstance(content, list) else ()
    parts = [item for item in items if isinstance(item, dict) and item.get("type") == "refusal"]
    return parts[0].get("refusal") if parts else None


def _text(content: Any) -> str:
    # a text, a list of items, of which thoughts are some, or the decoded object
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return json.dumps(content)
    items = content if isinstance(content, list) else ()
    texts = [
        item.get("text") if isinstance(item, dict) else item
        for item in items
        if not isinstance(item, dict) or item.get("type", "text") in ("text", "output_text")
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _misplaced(message: Mapping[str, Any]) -> str:
    """Return the object that stands alone in a field beside an empty content; else nothing.

    vLLM's reasoning parsers take an answer that is written by the schema for a thought, as it has
    no end of thoughts; gateways ask other vendors for it as the arguments of a tool.
    """
    calls = message.get("tool_calls")
    call = calls[0] if isinstance(calls, list) and len(calls) == 1 else message
    call = call if isinstance(call, dict) else {}
    function = call.get("function") or call.get("function_call")
    found = (
        message.get("parsed"),
        function.get("arguments") if isinstance(function, dict) else None,
        message.get("reasoning_content"),
        message.get("reasoning"),
    )
    texts = (json.dumps(value) if isinstance(value, dict) else value for value in found)
    objects = (text.strip() for text in texts if isinstance(text, str))
    return next((text for text in objects if text.startswith("{") and text.endswith("}")), "")


def _usage(usage: Any) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    tokens_in = usage.get("prompt_tokens", usage.get("input_tokens"))
    tokens_out = usage.get("completion_tokens", usage.get("output_tokens"))
    if _is_count(tokens_in) and _is_count(tokens_out):
        return TokenUsage(tokens_in, tokens_out)
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_TOKENS


def read_error_reply(status: int, reply: Any, body: bytes) -> FailedAttempt:
    """Return the meaning of a status other than success.

    `reply` is the decoded body, None where it is no JSON.
    """
    failure = _read_error(status, reply, body)
    if failure.outcome in ("rate_limited", "server_error"):
        failure.retry_after = _pause_in(reply)
    return failure


def _read_error(status: int, reply: Any, body: bytes) -> FailedAttempt:
    if status == 413:
        return FailedAttempt("too_long", "status 413")
    complaint = _complaint(status, reply, body)
    code = complaint.code
    message = complaint.message
    detail = f"status {status}" + (f" ({code})" if code else "")
    words = printable_words(complaint.said)

    def failed(
        outcome: AttemptOutcome, *, complained: bool = False, hopeless: bool = False
    ) -> FailedAttempt:
        return FailedAttempt(
            outcome,
            detail,
            complaint if complained else None,
            hopeless=hopeless,
            unpaid=unpaid,
            words=words,
        )

    codes = _codes(reply)
    unpaid = bool(
        status == 402
        or code in _QUOTA_CODES
        or not _QUOTA_CODES.isdisjoint(codes)
        or _OUT_OF_MONEY.search(message)
        or (status == 403 and _NO_CREDITS.search(message))
    )
    broke = unpaid or bool(_ACCOUNT.match(message))
    throttled = code in _THROTTLED_CODES or (status == 502 and _THROTTLED.search(message))
    if status == 429 or throttled:
        return failed("rate_limited", hopeless=broke)
    if status == 400 and code in _MODEL_CODES:
        return failed("denied", hopeless=True)
    if status in (400, 412, 502) and (not _ACCOUNT_CODES.isdisjoint(codes) or broke):
        return failed("denied", hopeless=True)
    refused_text = _REFUSED if status == 403 else _REFUSED_BY_GATEWAY
    if any(map(_REFUSED.search, codes)) or refused_text.search(message):
        return failed("refused")
    most = _MOST_OUTPUT.search(message) if complaint.about("max_tokens", *_LIMIT_NAMES) else None
    if most is not None and not _CONTEXT.search(message):
        complained = failed("client_error", complained=True)
        complained.most_output = int(most[1])
        return complained
    if code in _TOO_LONG_CODES or (status in (400, 422, 500, 502) and _TOO_LONG.search(message)):
        return failed("too_long")
    if status in (401, 402, 403, 404, 405, 407, 410, 451) or 300 <= status < 400:
        return failed("denied", complained=True, hopeless=True)
    server_error = status in (408, 409) or status >= 500 or code in _GENERATION_CODES
    return failed("server_error" if server_error else "client_error", complained=True)


_LIMIT_NAMES = ("max_completion_tokens", "max_output_tokens", "maxoutputtokens")
_CONTEXT = re.compile(r"context|prompt|input")


def _opened(reply: Any) -> Any:
    """Return the error in a reply, out of what servers and gateways wrap it in."""
    for _ in range(_DEEPEST):
        if isinstance(reply, list) and reply:
            reply = reply[0]
        elif isinstance(reply, Mapping):
            errors = reply.get("errors")
            if not isinstance(errors, list) or _first_text(reply, "message", "detail"):
                errors = None
            inner = reply.get("error") or errors
            if not isinstance(inner, Mapping | list | str) or not inner:
                break
            if isinstance(inner, str) and _first_text(reply, "message", "detail"):
                break
            reply = inner
        else:
            break
    return _behind(reply) or reply


def _behind(error: Any) -> Any:
    """Return the provider's own error in a gateway's: an object, or JSON as text; else None."""
    if not isinstance(error, Mapping):
        return None
    inner = error.get("message")
    if isinstance(inner, Mapping) and _first_text(inner, "message", "error"):
        return inner  # LiteLLM
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if not isinstance(raw, str) or _first_text(error, "message").lower() != _BEHIND:
        return None
    opened = decode_json(raw.encode())
    found = _opened(opened) if isinstance(opened, Mapping | list) else {"message": raw}
    return {"code": error.get("code"), **found} if isinstance(found, Mapping) else None


def _codes(reply: Any) -> list[str]:
    """Return the codes anywhere in an error: a gateway keeps the provider's own below its own."""
    found: list[str] = []
    left = [(reply, 0)]
    while left and len(found) < _MOST_CODES:
        value, depth = left.pop()
        if depth > _DEEPEST:
            continue
        if isinstance(value, Mapping):
            for key, item in list(value.items())[:_MOST_CODES]:
                if key in _CODE_KEYS and isinstance(item, str):
                    found.append(_code_word(item))
                elif isinstance(item, Mapping | list):
                    left.append((item, depth + 1))
                elif key == "raw" and isinstance(item, str):
                    left.append((decode_json(item.encode()), depth + 1))
        elif isinstance(value, list):
            left += [(item, depth + 1) for item in value[:_MOST_CODES]]
    return found


def _pause_in(reply: Any) -> float | None:
    """Return the seconds that an error asks for: Google's `retryDelay`, a field or its words."""
    left = [(reply, 0)]
    looked = 0
    while left and looked < _MOST_CODES:
        value, depth = left.pop()
        looked += 1
        if depth > _DEEPEST:
            continue
        if isinstance(value, list):
            left += [(item, depth + 1) for item in value[:_MOST_CODES]]
        if not isinstance(value, Mapping):
            continue
        for key, item in list(value.items())[:_MOST_CODES]:
            if key in (*_PAUSE_KEYS, "estimated_time"):
                seconds = read_duration(item[:60]) if isinstance(item, str) else item
                if type(seconds) in (int, float) and (pause := bounded_pause(seconds)) is not None:
                    return pause
            elif key == "message" and isinstance(item, str):
                found = _PAUSE.search(item[:_MESSAGE_CHARS].lower())
                seconds = read_duration(found[1]) if found else None
                if seconds is not None:
                    return bounded_pause(seconds)
            elif isinstance(item, Mapping | list):
                left.append((item, depth + 1))
    return None


def _code_word(text: str) -> str:
    # a code is a word, of AWS behind its package; anything else could be text of the trace
    text = text.rpartition("#")[2]
    return text.lower() if re.fullmatch(r"[\w.-]{1,60}", text) else ""


def _complaint(status: int, reply: Any, body: bytes) -> ServerComplaint:
    error = _opened(reply)
    code = ""
    message = ""
    fields = frozenset[str]()
    if isinstance(error, Mapping):
        code = next((word for word in _own_codes(error) if not word.isdigit()), "")
        message = _first_text(error, "message", "detail", "error", "msg", "Message")
        message = message or next(_validation_words(error), "") or _nested_words(error, status)
        fields = frozenset(_named_fields(error))
    elif isinstance(error, str):
        message = error
    elif reply is None:
        message = page_text(body[: 4 * _MESSAGE_CHARS].decode("utf-8", "replace"))
    said = message[:_MESSAGE_CHARS]
    return ServerComplaint(
        status=status,
        fields=fields,
        code=code,
        message=said.lower(),
        said=said,
    )


# Where gateways and clouds put the words of an error: Baidu, MiniMax, Lambda, Apigee, RFC 9457.
_WORD_KEYS = ("error_msg", "error_message", "errorMessage", "status_msg", "faultstring")
# and in an error alone, as a reply with status 200 may have an answer there
_ERROR_KEYS = ("message", *_WORD_KEYS, "error", "title")


def _nested_words(error: Mapping[str, Any], status: int) -> str:
    """Return the words of an error under a rarer name, or within one of its fields."""
    keys = _WORD_KEYS if status < 300 else _ERROR_KEYS
    level: list[Any] = [error]
    for _ in range(_DEEPEST):
        maps = [one for one in level[:_MOST_CODES] if isinstance(one, Mapping)]
        for one in maps:
            if text := _first_text(one, *keys):
                return text
        level = [value for one in maps for value in list(one.values())[:_MOST_CODES]]
    return ""


def _own_codes(error: Mapping[str, Any]) -> Iterator[str]:
    for key in _CODE_KEYS:
        value = error.get(key)
        if isinstance(value, str) and (word := _code_word(value)):
            yield word


def _first_text(error: Mapping[str, Any], *keys: str) -> str:
    return next((text for key in keys if isinstance(text := error.get(key), str) and text), "")


def _named_fields(error: Mapping[str, Any]) -> Iterator[str]:
    """Parameters that an error names: `param`, or the `loc` of FastAPI's validation."""
    param = error.get("param")
    if isinstance(param, str) and param:
        yield param[:100].lower()
    for item in _validation_details(error):
        if location := _location(item):
            yield location[:100].lower()


def _validation_details(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    inner = error.get("message")
    for holder in (error, inner if isinstance(inner, Mapping) else {}):
        details = holder.get("detail")
        for item in details[:20] if isinstance(details, list) else ():
            if isinstance(item, Mapping):
                yield item


def _location(item: Mapping[str, Any]) -> str:
    location = item.get("loc")
    names = location if isinstance(location, list) else []
    return ".".join(name for name in names if isinstance(name, str) and name != "body")


def _validation_words(error: Mapping[str, Any]) -> Iterator[str]:
    """Say what FastAPI's validation complains of: `seed: Extra inputs are not permitted`."""
    for item in _validation_details(error):
        if text := _first_text(item, "msg"):
            yield ": ".join(filter(None, (_location(item), text)))
