"""Parts that the tests of the judge share: a question, a clock that only sleeping moves, a client
whose server is a function."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.billing import Attempt
from ragmeter.scorers.llm.client import MOST_RETRIES, JudgeClient
from ragmeter.scorers.llm.exchange import ClientTiming
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion
from ragmeter.scorers.llm.served_model import ServedModel

GRADE_SCHEMA = {
    "type": "object",
    "properties": {"grade": {"type": "integer", "enum": [0, 1, 2, 3]}},
    "required": ["grade"],
    "additionalProperties": False,
}


def question(user: str = "How relevant is it?", **changes: Any) -> JudgeQuestion[int]:
    values: dict[str, Any] = {
        "prompt": "grade@1",
        "prompt_hash": "hash-1",
        "system": "You grade.",
        "user": user,
        "schema": GRADE_SCHEMA,
        "read": lambda data: int(data["grade"]),
    }
    return JudgeQuestion(**{**values, **changes})


class Clock:
    """Monotonic and wall time in one; `sleep` moves it and notes what was slept."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def completion(
    content: str | None = '{"grade": 2}', finish: str = "stop", **changes: Any
) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    reply = {
        "model": "served-1",
        "system_fingerprint": "fp_1",
        "choices": [{"message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }
    return {**reply, **changes}


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


Reply = httpx.Response | dict[str, Any] | Exception | int
Server = Callable[[dict[str, Any], httpx.Request], Reply]


class Asked:
    """A client, its clock, what it sent, and what it reported."""

    def __init__(
        self,
        server: Server,
        *,
        state: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        retries: int = MOST_RETRIES,
        **settings: Any,
    ):
        self.bodies: list[dict[str, Any]] = []
        self.requests: list[httpx.Request] = []
        self.attempts: list[Attempt] = []
        self.changes: list[tuple[ServedModel, ServedModel]] = []
        self.clock = clock or Clock()
        self.cost = ScoringCost()

        def handle(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.read())
            self.bodies.append(body)
            self.requests.append(request)
            reply = server(body, request)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, int):
                return httpx.Response(reply)
            return reply if isinstance(reply, httpx.Response) else httpx.Response(200, json=reply)

        self.client = JudgeClient(
            JudgeSettings(**{"base_url": "http://judge.test/v1", "model": "asked-1", **settings}),
            http=httpx.AsyncClient(transport=httpx.MockTransport(handle)),
            state=state,
            observe=self.attempts.append,
            on_change=lambda old, new: self.changes.append((old, new)),
            timing=ClientTiming(self.clock, self.clock, self.clock.sleep, random.Random(1)),
            retries=retries,
        )

    @property
    def outcomes(self) -> list[str]:
        return [attempt.outcome for attempt in self.attempts]

    async def ask(self, what: JudgeQuestion[Any] | None = None) -> Any:
        """The value, or the reason why there is none."""
        try:
            return (await self.client.ask(what or question(), self.cost)).value
        except JudgeFailed as failed:
            return failed.reason

    def once(self, what: JudgeQuestion[Any] | None = None) -> Any:
        return asyncio.run(self.ask(what))


def script(*replies: Reply) -> Server:
    """Gives these replies in turn, the last for ever."""
    left = list(replies)

    def serve(_: dict[str, Any], __: httpx.Request) -> Reply:
        return left.pop(0) if len(left) > 1 else left[0]

    return serve
