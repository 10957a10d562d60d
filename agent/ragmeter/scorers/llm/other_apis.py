"""Recognise the replies of other APIs than that of chat completions, to name them.

A server of another API gives no verdict until its address is changed, and may be paid for each
reply, so one is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class OtherApi(NamedTuple):
    """An API that is not that of chat completions.

    Its replies have `key`, whose value is a `kind`, and one of the keys `beside` if there are any;
    `end` says how an answer ended.
    """

    name: str
    key: str
    kind: type
    beside: frozenset[str] = frozenset()
    end: str = "finish_reason"


_APIS = (
    OtherApi("Gemini's own API", "candidates", list, end="finishReason"),
    OtherApi("Anthropic's Messages API", "content", list, end="stop_reason"),
    OtherApi("Bedrock's Converse or DashScope's own API", "output", dict, end="stopReason"),
    OtherApi("OpenAI's Responses API", "output", list, end="status"),
    OtherApi("Ollama's or Cohere's own API", "message", dict),
    OtherApi("Cloudflare's own API", "result", dict, frozenset(("success",))),
    OtherApi("Cloudflare's own API", "result", list, frozenset(("success",))),
    OtherApi("Text Generation Inference's own API", "generated_text", str),
    OtherApi("Text Generation Inference's own API", "generated_text", list),
    OtherApi("Vertex AI's or KServe's own API", "predictions", list),
    OtherApi(
        "Ollama's own API",
        "response",
        str,
        beside=frozenset(("done", "created_at")),
        end="done_reason",
    ),
    OtherApi("llama.cpp's own API", "content", str, frozenset(("stop", "tokens_predicted"))),
    OtherApi("Triton's own API", "text_output", str),
    OtherApi("KServe's inference protocol", "outputs", list),
    OtherApi("Replicate's own API", "urls", dict, frozenset(("input", "version"))),
    OtherApi("Bedrock's or watsonx's own API", "results", list),
    OtherApi("AI21's own API", "completions", list),
    OtherApi("Bedrock's API of Llama or Cohere", "generation", str, end="stop_reason"),
    OtherApi("Cohere's own API", "generations", list),
    OtherApi("embeddings or models", "data", list, frozenset(("object", "model"))),
)


def find_other_api(reply: Any) -> tuple[OtherApi, Mapping[str, Any]] | None:
    """Return the API of a reply, and the object of it that says how its answer ended.

    None: it is of none that is known.
    """
    for _ in range(2):  # a list of answers, of one request or of each of several
        if isinstance(reply, list) and reply:
            reply = reply[0]
    if not isinstance(reply, Mapping):
        return None
    choices = reply.get("choices")
    if isinstance(choices, list) and choices:
        first = choices[0]
        if isinstance(first, Mapping) and isinstance(first.get("text"), str):
            return OtherApi("the older Completions API", "choices", list), first
        return None
    found = next((api for api in _APIS if _is_of(reply, api)), None)
    if found is None:
        return None
    holder = reply
    if found.key in ("candidates", "generations"):
        first = next(iter(reply[found.key]), None)
        holder = first if isinstance(first, Mapping) else {}
    return found, holder


def _is_of(reply: Mapping[str, Any], api: OtherApi) -> bool:
    value = reply.get(api.key)
    if isinstance(value, dict) and not api.beside:  # an error may have a field of that name, too
        told = isinstance(value.get("message"), dict) or value.keys() & {"role", "text", "choices"}
        value = value if told else None
    if api.beside and api.beside.isdisjoint(reply):
        return False
    return isinstance(value, api.kind) and reply.get("success") is not False
