"""An OpenAI-compatible model that answers at once, except under the names that fail.

Every answer and its tokens differ, and all of them are remembered: what came out of the model is
known here, whatever an application or its instrumentation says of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.apps.shop import BROKEN, SLOW

__all__ = ["Call", "Model", "model_server"]


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

    def answer(self, prompt: str, asked: str) -> Call:
        with self._mutex:
            number = len(self.calls)
            call = Call(
                prompt=prompt,
                answer=f"Passage one says so [1]. This is reply {number}.",
                model=f"{asked}-2026-01-01",  # providers name the build, not what was asked for
                input_tokens=200 + 7 * number,
                output_tokens=20 + number,
            )
            self.calls.append(call)
        return call


class Handler(BaseHTTPRequestHandler):
    model: Model

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] == SLOW:
            self.model.ended.wait(60)
            return
        if body["model"] == BROKEN:
            self.reply(500, {"error": {"message": "out of memory", "type": "server_error"}})
            return
        prompt = "\n".join(text_of(message["content"]) for message in body["messages"])
        call = self.model.answer(prompt, body["model"])
        usage = {
            "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens,
            "total_tokens": call.input_tokens + call.output_tokens,
        }
        head = {"id": f"chatcmpl-{call.output_tokens}", "created": 1, "model": call.model}
        if body.get("stream"):
            with_usage = (body.get("stream_options") or {}).get("include_usage")
            self.stream(head, call.answer, usage if with_usage else None)
            return
        message = {"role": "assistant", "content": call.answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.reply(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def reply(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, head: dict[str, Any], answer: str, usage: dict[str, int] | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        words = [word + " " for word in answer.split(" ")]
        words[-1] = words[-1].rstrip()
        choices: list[list[dict[str, Any]]] = [
            [{"index": 0, "delta": {"role": "assistant", "content": w}, "finish_reason": None}]
            for w in words
        ]
        choices.append([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        for choice in choices:
            self.event({**head, "object": "chat.completion.chunk", "choices": choice})
        if usage is not None:
            last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
            self.event({**head, **last})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, document: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")


def text_of(content: object) -> str:
    """A message's text; some clients send it in parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


@contextmanager
def model_server() -> Iterator[Model]:
    model = Model()
    handler = type("Bound", (Handler,), {"model": model})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        model.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            model.ended.set()
            server.shutdown()
            thread.join()
