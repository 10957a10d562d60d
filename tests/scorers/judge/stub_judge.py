"""A judge for tests and benchmarks: an OpenAI-compatible server that answers by the schema it gets.

In a test: `async with StubJudge(latency=0.01) as stub: ... stub.base_url`. As a process:
`python -m tests.scorers.judge.stub_judge --port 9999 --latency 0.2 --fault malformed=0.05`, which
prints its base URL; `GET /stats` gives the counts, `POST /reset` clears them, `POST /faults` with
shares by name replaces the faults.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tests.scorers.judge.stub_answers import Answering, Messages, by_content, generated, schema_of

__all__ = ["FAULTS", "Answering", "Messages", "StubJudge", "by_content", "generated", "schema_of"]

FAULTS = (
    "ok",  # for scripts: no fault
    "hang",
    "rate_limit",
    "quota",
    "http_408",
    "http_500",
    "http_503",
    "http_400",
    "http_401",
    "http_404",
    "bad_request",  # 400 that says nothing
    "too_long",
    "http_413",
    "filtered",  # 400 with the code of a content filter
    "disconnect",  # the connection ends without a reply
    "cut",  # it ends within the reply
    "trickle",
    "huge",
    "no_json",  # a reply that is no JSON
    "no_choices",
    "error_200",
    "garbage",  # a completion that is no JSON
    "prose",
    "truncated",  # half of the JSON, finish_reason stop
    "length",  # half of the JSON, finish_reason length
    "violation",
    "wrong_length",  # a list one short
    "refuse",
    "content_filter",
    "fenced",
    "thinking",
    "lie",  # another model's name
    "wrong",  # what `liar` answers, under its own name
)
# What `malformed` draws from.
MALFORMED = ("garbage", "prose", "truncated", "violation")


class StubJudge:
    """`faults`: name -> share of requests, drawn with `seed`; `malformed` is one of four at random.
    `script`: faults of the next requests, before any drawing. `formats`: the `response_format`
    types that are known, others are refused with 400; `ignores_format`: takes any, and answers with
    prose. `liar`: what a `wrong` answer is. `lacks`: parameters that are refused. `api_key`: what
    must come, else 401. `builds`: so many answer in turn, at random."""

    def __init__(
        self,
        *,
        latency: float = 0.0,
        answer: Answering = by_content,
        liar: Answering | None = None,
        faults: Mapping[str, float] | None = None,
        script: Iterable[str] = (),
        seed: int = 0,
        model: str = "stub-1",
        system_fingerprint: str | None = "fp_stub",
        builds: int = 1,
        formats: Iterable[str] = ("json_schema", "json_object", "json_object_schema"),
        ignores_format: bool = False,
        lacks: Iterable[str] = (),
        api_key: str | None = None,
        usage: bool = True,
        retry_after: str = "1",
        keep_bodies: bool = True,
    ) -> None:
        self.latency = latency
        self.answer = answer
        self.liar = liar or answer
        self.suffer(faults or {})
        unknown = set(script) - set(FAULTS) - {"malformed"}
        assert not unknown, unknown
        self.script = deque(script)
        self.model = model
        self.system_fingerprint = system_fingerprint
        self.builds = builds
        self._build = random.Random(seed)
        self.formats = set(formats)
        self.ignores_format = ignores_format
        self.lacks = set(lacks)
        self.api_key = api_key
        self.usage = usage
        self.retry_after = retry_after
        self.keep_bodies = keep_bodies
        self._rng = random.Random(seed)
        self._runner: web.ServerRunner | None = None
        self.base_url = ""
        self.reset()

    def reset(self) -> None:
        self.calls = 0
        self.answered = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.fault_counts: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def suffer(self, faults: Mapping[str, float]) -> None:
        """These faults, and no others, from the next request on."""
        unknown = set(faults) - set(FAULTS) - {"malformed"}
        assert not unknown, unknown
        self.faults = dict(faults)

    def stats(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "answered": self.answered,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "max_in_flight": self.max_in_flight,
            "faults": dict(self.fault_counts),
        }

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> str:
        """Serves; the base URL."""
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        address = self._runner.addresses[0]
        self.base_url = f"http://{address[0]}:{address[1]}/v1"
        return self.base_url

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> StubJudge:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/stats":
            return web.json_response(self.stats())
        if request.path == "/reset":
            self.reset()
            return web.json_response({})
        if request.path == "/faults":
            self.suffer(json.loads(await request.read()))
            return web.json_response(self.faults)
        self.calls += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            return await self._chat(request, await request.read())
        finally:
            self.in_flight -= 1

    def _fault(self) -> str:
        fault = self.script.popleft() if self.script else ""
        if not fault and self.faults:
            point = self._rng.random()
            for name, share in self.faults.items():
                point -= share
                if point < 0:
                    fault = name
                    break
        if fault == "malformed":
            fault = self._rng.choice(MALFORMED)
        if fault and fault != "ok":
            self.fault_counts[fault] += 1
        return fault

    async def _chat(self, request: web.BaseRequest, raw: bytes) -> web.StreamResponse:
        body = json.loads(raw)
        if self.keep_bodies:
            self.bodies.append(body)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
        refusal = self._refusal(request, body)
        if refusal is not None:
            return refusal
        fault = self._fault()
        if self.latency:
            await asyncio.sleep(self.latency)
        if fault in ("hang", "disconnect"):
            if fault == "hang":
                await asyncio.sleep(3600)
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        error = self._error(fault)
        if error is not None:
            return error
        return await self._completion(request, body, fault)

    def _refusal(self, request: web.BaseRequest, body: Mapping[str, Any]) -> web.Response | None:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return failing(401, "Incorrect API key provided.", code="invalid_api_key")
        for name in ("temperature", "seed", "max_tokens"):
            if name in self.lacks and name in body:
                return failing(
                    400,
                    f"Unsupported parameter: '{name}' is not supported with this model.",
                    param=name,
                    code="unsupported_parameter",
                )
        form = body.get("response_format")
        if form is not None and not self.ignores_format:
            kind = form["type"] + ("_schema" if "schema" in form else "")
            if kind not in self.formats:
                return failing(
                    400, f"'{form['type']}' is not supported.", param="response_format.type"
                )
        return None

    def _error(self, fault: str) -> web.Response | None:
        if fault == "rate_limit":
            headers = {"Retry-After": self.retry_after} if self.retry_after else {}
            return failing(429, "Rate limit reached.", code="rate_limit_exceeded", headers=headers)
        if fault == "quota":
            return failing(429, "You exceeded your current quota.", code="insufficient_quota")
        if fault == "too_long":
            return failing(
                400,
                "This model's maximum context length is 4096 tokens. However, you requested 9000.",
                param="messages",
                code="context_length_exceeded",
            )
        if fault == "filtered":
            return failing(400, "The response was filtered.", code="content_filter")
        if fault == "bad_request":
            return web.Response(status=400, text="bad request")
        if fault.startswith("http_"):
            headers = {"Retry-After": self.retry_after} if fault == "http_503" else {}
            return failing(int(fault[5:]), "Something went wrong.", headers=headers)
        if fault == "error_200":
            return web.json_response({"error": {"message": "upstream", "code": 502}})
        if fault == "no_choices":
            return web.json_response({"object": "chat.completion", "choices": []})
        if fault == "no_json":
            return web.Response(text="<html>gateway</html>", content_type="text/html")
        return None

    async def _completion(
        self, request: web.BaseRequest, body: Mapping[str, Any], fault: str
    ) -> web.StreamResponse:
        messages = body["messages"]
        answering = self.liar if fault == "wrong" else self.answer
        value = answering(messages, schema_of(body))
        message: dict[str, Any] = {"role": "assistant", "content": None}
        message["content"] = content = self._content(value, fault, "response_format" in body)
        finish = {"length": "length", "content_filter": "content_filter"}.get(fault, "stop")
        if fault == "refuse":
            message.update(content=None, refusal="I cannot help with that.")
        tokens_in = sum(len(one["content"]) for one in messages) // 4
        tokens_out = max(1, len(content) // 4)
        self.answered += 1
        self.input_tokens += tokens_in
        self.output_tokens += tokens_out
        reply: dict[str, Any] = {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": 0,
            "model": "liar-7b" if fault == "lie" else self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if self.system_fingerprint is not None:
            reply["system_fingerprint"] = self.system_fingerprint
            if self.builds > 1:
                reply["system_fingerprint"] += f"_{self._build.randrange(self.builds)}"
        if self.usage:
            reply["usage"] = {
                "prompt_tokens": tokens_in,
                "completion_tokens": tokens_out,
                "total_tokens": tokens_in + tokens_out,
            }
        data = json.dumps(reply).encode()
        if fault in ("trickle", "cut"):
            return await self._slowly(request, data, fault)
        return web.Response(body=data, content_type="application/json")

    def _content(self, value: object, fault: str, formatted: bool) -> str:
        text = json.dumps(value)
        if fault == "garbage":
            return "}{ grade: \x00\u2028 ```"
        if fault == "prose" or (self.ignores_format and formatted):
            return f"Sure! Here is what I found: {text} I hope that helps."
        if fault in ("truncated", "length"):
            return text[: len(text) // 2]
        if fault == "violation":
            return json.dumps({"unexpected": [value, value]})
        if fault == "wrong_length" and isinstance(value, dict):
            shorter = {k: v[:-1] if isinstance(v, list) else v for k, v in value.items()}
            return json.dumps(shorter)
        if fault == "fenced":
            return f"```json\n{text}\n```"
        if fault == "thinking":
            return f'<think>It could be {{"x": 1}}.</think>\n{text}'
        if fault == "huge":
            return "x" * 5_000_000
        return text

    async def _slowly(
        self, request: web.BaseRequest, data: bytes, fault: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(data)
        await response.prepare(request)
        if fault == "cut":
            await response.write(data[: len(data) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        with contextlib.suppress(ConnectionError):  # the client has had enough
            for byte in data:
                await response.write(bytes([byte]))
                await asyncio.sleep(0.02)
        return response


def failing(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)


async def serve(arguments: argparse.Namespace) -> None:
    faults = dict(pair.split("=") for pair in arguments.fault)
    stub = StubJudge(
        latency=arguments.latency,
        faults={name: float(share) for name, share in faults.items()},
        seed=arguments.seed,
        builds=arguments.builds,
        keep_bodies=False,
    )
    print(await stub.start(arguments.port), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await stub.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--builds", type=int, default=1)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
