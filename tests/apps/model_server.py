"""An OpenAI-compatible model that answers at once, except under the names that fail.

A model that is given a tool asks it before it answers. Gemini's own form of a request is taken too.
Every answer and its tokens differ, and all of them are remembered: what came out of the model is
known here, whatever an application or its instrumentation says of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from werkzeug import Request, Response

from tests.apps.shop import BROKEN, REQUESTS, SLOW
from tests.http_stub import http_stub

__all__ = ["Call", "Model", "model_server"]


# A reply to a prompt of DSPy, which names the parts of the answer so.
FIELDS = "[[ ## reasoning ## ]]\nIt is there.\n\n[[ ## answer ## ]]\n{}\n\n[[ ## completed ## ]]"


@dataclass(frozen=True)
class Call:
    """One completion that was given."""

    prompt: str
    answer: str
    model: str
    input_tokens: int
    output_tokens: int


@dataclass
class Model:
    """`base_url` of the server and what it answered. Requests for SLOW wait for `ended`."""

    base_url: str = ""
    calls: list[Call] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, prompt: str, asked: str, text: bool = True) -> Call:
        """Give an answer, without a text if it only asks a tool."""
        with self._mutex:
            number = len(self.calls)
            call = Call(
                prompt=prompt,
                answer=f"Passage one says so [1]. This is reply {number}." if text else "",
                model=f"{asked}-2026-01-01",  # providers name the build, not what was asked for
                input_tokens=200 + 7 * number,
                output_tokens=20 + number,
            )
            self.calls.append(call)
        return call

    def take(self, request: Request) -> Response:
        """Answer a request of either form."""
        body = request.get_json(force=True)
        if "contents" in body:
            return self._generate_content(request.path, body)
        if body["model"] == SLOW:
            self.ended.wait(60)
            return Response()
        if body["model"] == BROKEN:
            return _json(500, {"error": {"message": "out of memory", "type": "server_error"}})
        messages = body["messages"]
        prompt = "\n".join(text_of(message.get("content")) for message in messages)
        schemas = [tool["function"] for tool in body.get("tools") or ()]
        tool = tool_to_call(
            {schema["name"]: schema["parameters"] for schema in schemas},
            has_result=any(one["role"] in ("assistant", "tool") for one in messages),
        )
        call = self.answer(prompt, body["model"], text=tool is None or not tool[1])
        usage = {
            "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens,
            "total_tokens": call.input_tokens + call.output_tokens,
        }
        head = {"id": f"chatcmpl-{call.output_tokens}", "created": 1, "model": call.model}
        content = FIELDS.format(call.answer) if "[[ ## answer ## ]]" in prompt else call.answer
        message: dict[str, Any] = {"role": "assistant", "content": content or None}
        if tool is not None:
            arguments = json.dumps(arguments_for(call, *tool))
            function = {"name": tool[0], "arguments": arguments}
            asked = {"id": f"call_{call.output_tokens}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **asked}]}
        if body.get("stream"):
            with_usage = (body.get("stream_options") or {}).get("include_usage")
            parts = _streamed(head, message, usage if with_usage else None)
            return Response(parts, content_type="text/event-stream")
        finish = "stop" if tool is None else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return _json(
            200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )

    def _generate_content(self, path: str, body: dict[str, Any]) -> Response:
        """Reply as Gemini does; the model's name is in the path."""
        name = path.rpartition("/")[2].partition(":")[0]
        if name.endswith(BROKEN):
            error = {"code": 500, "message": "out of memory", "status": "INTERNAL"}
            return _json(500, {"error": error})
        parts = [part for content in body["contents"] for part in content["parts"]]
        prompt = "\n".join(part.get("text") or "" for part in parts)
        declared = [one for tool in body.get("tools", ()) for one in tool["functionDeclarations"]]
        schemas = {one["name"]: one.get("parameters") or {} for one in declared}
        tool = tool_to_call(schemas, has_result="functionResponse" in parts[-1])
        call = self.answer(prompt, name, text=tool is None or not tool[1])
        part: dict[str, Any] = {"text": call.answer}
        if tool is not None:
            part = {"functionCall": {"name": tool[0], "args": arguments_for(call, *tool)}}
        content = {"role": "model", "parts": [part]}
        usage = {
            "promptTokenCount": call.input_tokens,
            "candidatesTokenCount": call.output_tokens,
            "totalTokenCount": call.input_tokens + call.output_tokens,
        }
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        document = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": call.model}
        return _json(200, document)


def _json(status: int, document: dict[str, Any]) -> Response:
    return Response(json.dumps(document), status, content_type="application/json")


def _streamed(
    head: dict[str, Any], message: dict[str, Any], usage: dict[str, int] | None
) -> Iterator[bytes]:
    """The events of an answer that comes word by word."""
    deltas = [message]
    if message["content"] is not None:
        words = [word + " " for word in message["content"].split(" ")]
        words[-1] = words[-1].rstrip()
        deltas = [{"role": "assistant", "content": word} for word in words]
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas
    ]
    finish = "stop" if message["content"] is not None else "tool_calls"
    choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    for choice in choices:
        yield _event({**head, "object": "chat.completion.chunk", "choices": choice})
    if usage is not None:
        yield _event({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def tool_to_call(schemas: dict[str, dict[str, Any]], has_result: bool) -> tuple[str, bool] | None:
    """The tool to call and whether it is asked to search (else it takes the answer), if any."""
    for name, schema in schemas.items():
        if has_result == ("answer" in schema.get("properties", {})):
            return name, not has_result
    for name, schema in schemas.items():  # structured output: there is no other tool
        if not has_result and "answer" in schema.get("properties", {}):
            return name, False
    return None


def arguments_for(call: Call, tool: str, searches: bool) -> dict[str, Any]:
    """The arguments of a call: the model words the search itself."""
    if not searches:
        return {"answer": call.answer, **({} if tool == "final_answer" else {"citations": [1]})}
    asked = [request.question for request in REQUESTS if request.question in call.prompt]
    return {"query": asked[-1].lower().rstrip("?")}


def text_of(content: object) -> str:
    """A message's text; some clients send it in parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return str(content or "")


@contextmanager
def model_server() -> Iterator[Model]:
    model = Model()
    with http_stub(model.take) as server:
        model.base_url = server.url_for("/v1")
        try:
            yield model
        finally:
            model.ended.set()
