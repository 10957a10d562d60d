"""Put a streamed reply together: some gateways stream though nobody asks them to.

The result is a reply as one that is not streamed, so that one reader reads both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
_END = "[DONE]"


def join_stream(body: bytes) -> dict[str, Any] | None:
    """Return the chat completion, or the error, that a stream of chunks makes up.

    None: it is a stream of something else. One that breaks off before the answer ends is an error.
    """
    texts: dict[str, list[str]] = {name: [] for name in _TEXT_FIELDS}
    reply: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    ended = False
    for chunk in _chunks(body):
        if chunk == _END:
            ended = True
            break
        if not isinstance(chunk, dict):
            break
        if chunk.get("error"):
            return {"error": chunk["error"]}
        reply |= {
            key: chunk[key] for key in ("model", "system_fingerprint", "usage") if chunk.get(key)
        }
        for one in _first_choices(chunk.get("choices")):
            choice |= {key: value for key, value in one.items() if key != "delta" and value}
            delta = one.get("delta")
            for name in _TEXT_FIELDS:
                piece = delta.get(name) if isinstance(delta, dict) else None
                if isinstance(piece, str):
                    texts[name].append(piece)
    if not choice and not any(texts.values()):
        return None
    if not ended and not choice.get("finish_reason"):
        return {"error": {"message": "the stream broke off"}}
    message = {name: "".join(pieces) for name, pieces in texts.items() if pieces}
    return {**reply, "choices": [{"message": message, **choice}]}


def _chunks(body: bytes) -> Iterator[Any]:
    """Yield the data of each event, decoded; None for data that is no JSON."""
    for line in body.decode("utf-8", "replace").splitlines():
        name, _, data = line.partition(":")
        data = data.strip()
        if name != "data" or not data:
            continue
        if data == _END:
            yield _END
            return
        try:
            yield json.loads(data)
        except (ValueError, RecursionError):
            yield None


def _first_choices(choices: Any) -> Iterator[Mapping[str, Any]]:
    for one in choices if isinstance(choices, list) else ():
        if isinstance(one, dict) and one.get("index") in (0, None):
            yield one
