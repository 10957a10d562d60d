"""The judge client against a server that no one here wrote: llama.cpp's, with a random model."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.billing import Attempt
from ragmeter.scorers.llm.client import MOST_RETRIES, JudgeClient
from ragmeter.scorers.llm.exchange import ClientTiming
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict
from ragmeter.scorers.llm.served_model import ServedModel

from tests.ports import free_port
from tests.scorers.judge.real_server import KEY, MODEL, LlamaServer, llama_server
from tests.waiting import until_async

pytestmark = pytest.mark.real

GRADE = {
    "type": "object",
    "properties": {"grade": {"type": "integer", "enum": [0, 1, 2, 3]}},
    "required": ["grade"],
    "additionalProperties": False,
}
# An answer of 4,400 tokens, some seconds of work; llama.cpp takes no grammar much longer.
LONG = {
    "type": "object",
    "properties": {
        "list": {"type": "array", "items": {"type": "integer", "enum": [0, 1]}, "minItems": 2000}
    },
    "required": ["list"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with llama_server(tmp_path_factory.mktemp("llama")) as running:
        yield running


class Asked:
    """A client with what it did: attempts in order, changes of who serves, and the cost."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.monotonic,
        retries: int = MOST_RETRIES,
        **judge: Any,
    ) -> None:
        self.attempts: list[Attempt] = []
        self.changes: list[tuple[ServedModel, ServedModel]] = []
        self.cost = ScoringCost()
        settings = JudgeSettings.model_validate(
            {"base_url": url, "model": "any", "api_key": KEY, "timeout_seconds": 30, **judge}
        )
        self.client = JudgeClient(
            settings,
            observe=self.attempts.append,
            on_change=lambda *change: self.changes.append(change),
            timing=ClientTiming(monotonic=clock, rng=random.Random(1)),
            retries=retries,
        )

    @property
    def outcomes(self) -> list[str]:
        return [attempt.outcome for attempt in self.attempts]

    async def ask(self, question: JudgeQuestion[Any]) -> JudgeVerdict[Any]:
        return await self.client.ask(question, self.cost)

    async def fails(self, question: JudgeQuestion[Any]) -> JudgeFailed:
        with pytest.raises(JudgeFailed) as failed:
            await self.ask(question)
        return failed.value


def run(asked: Asked, scenario: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        try:
            await scenario()
        finally:
            await asked.client.aclose()

    asyncio.run(all_of_it())


def question(
    number: int = 0, passage: str = "", schema: dict[str, Any] = GRADE, tokens: int = 200
) -> JudgeQuestion[int]:
    def read(answer: Any) -> int:
        return int(answer["grade"])

    user = f"Passage {number * 7919}: {passage or 'word ' * (number % 9)}"
    return JudgeQuestion("grade", "0" * 12, "You grade passages.", user, schema, read, tokens)


@pytest.mark.parametrize("structured", ["auto", "schema"])
def test_the_server_keeps_to_the_schema(server: LlamaServer, structured: str) -> None:
    asked = Asked(server.base_url, structured=structured)

    async def scenario() -> None:
        verdicts = await asyncio.gather(*(asked.ask(question(number)) for number in range(40)))
        grades = [verdict.value for verdict in verdicts]
        assert set(grades) <= {0, 1, 2, 3}
        assert len(set(grades)) > 1, "the answers do not depend on the passage"
        assert asked.outcomes == ["ok"] * 40
        assert len({verdict.fingerprint for verdict in verdicts}) == 1

    run(asked, scenario)


def test_noise_in_place_of_json_is_no_verdict(server: LlamaServer) -> None:
    asked = Asked(server.base_url, structured="prompt")

    async def scenario() -> None:
        failed = await asked.fails(question(1))
        assert failed.reason == "unparsable"
        assert 1 < len(asked.attempts) <= 4, "repairs are tried, and not for ever"
        assert set(asked.outcomes) <= {"malformed", "cut_off"}
        assert asked.cost.requests == len(asked.attempts)
        assert asked.cost.output_tokens > 100, "malformed answers are paid for too"

    run(asked, scenario)


def test_the_tokens_are_those_that_the_server_counts(server: LlamaServer) -> None:
    asked = Asked(server.base_url, input_usd_per_million=3.0, output_usd_per_million=10.0)
    one = question(3)
    messages = [{"role": "system", "content": one.system}, {"role": "user", "content": one.user}]
    reply = httpx.post(
        f"{server.base_url}/chat/completions",
        json={"messages": messages, "max_tokens": 1},
        headers={"authorization": f"Bearer {KEY}"},
    )

    async def scenario() -> None:
        await asked.ask(one)
        (attempt,) = asked.attempts
        assert not attempt.estimated
        assert attempt.input_tokens == reply.json()["usage"]["prompt_tokens"]
        assert 0 < attempt.output_tokens <= one.max_output_tokens
        usd = (3 * attempt.input_tokens + 10 * attempt.output_tokens) / 1e6
        assert asked.cost.usd == pytest.approx(usd)

    run(asked, scenario)


def test_a_prompt_over_the_context_is_too_long_and_not_tried_again(server: LlamaServer) -> None:
    asked = Asked(server.base_url)

    async def scenario() -> None:
        assert (await asked.fails(question(passage="x" * 20_000))).reason == "too_long"
        assert asked.outcomes == ["too_long"]
        assert isinstance((await asked.ask(question(2))).value, int)
        assert not asked.client.is_down

    run(asked, scenario)


def test_an_answer_cut_by_the_output_limit_gets_more_room_once(server: LlamaServer) -> None:
    asked = Asked(server.base_url)

    async def scenario() -> None:
        assert (await asked.ask(question(4, tokens=8))).value in (0, 1, 2, 3)
        assert asked.outcomes == ["cut_off", "ok"]
        asked.attempts.clear()
        assert (await asked.fails(question(schema=LONG, tokens=20))).reason == "unparsable"
        assert set(asked.outcomes) == {"cut_off"}
        assert len(asked.outcomes) <= 2

    run(asked, scenario)


def test_a_wrong_key_is_named_as_such_and_shown_nowhere(
    server: LlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(server.base_url, api_key="not-the-key")

    async def scenario() -> None:
        failed = await asked.fails(question())
        assert failed.reason == "judge_error"
        assert "401" in str(failed)
        assert (await asked.fails(question())).reason == "judge_unavailable"
        assert asked.outcomes == ["denied"], "a key that is refused is refused each time"
        assert "key" in caplog.text
        assert "not-the-key" not in caplog.text + str(failed)

    run(asked, scenario)


def test_a_rotated_key_is_read_from_its_file(server: LlamaServer, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("the-old-key")
    asked = Asked(server.base_url, api_key=None, api_key_file=path)

    async def scenario() -> None:
        path.write_text(f"{KEY}\n")
        assert isinstance((await asked.ask(question())).value, int)
        assert asked.outcomes == ["denied", "ok"]

    run(asked, scenario)


def test_a_server_that_stands_still_is_timed_out_and_served_again(server: LlamaServer) -> None:
    asked = Asked(server.base_url, timeout_seconds=0.5, retries=0)

    async def scenario() -> None:
        with server.standing_still():
            failed = await asyncio.gather(*(asked.fails(question(number)) for number in range(4)))
        assert {one.reason for one in failed} == {"judge_timeout"}
        assert asked.outcomes == ["timeout"] * 4
        assert all(attempt.estimated for attempt in asked.attempts), "it may well have worked on it"

    run(asked, scenario)
    patient = Asked(server.base_url)

    async def later() -> None:
        assert (await patient.ask(question(1))).value in (0, 1, 2, 3)

    run(patient, later)


def test_a_server_killed_at_work_and_another_one_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls in flight fail and name no grade, then nothing is sent; what serves later under the
    same address counts as another judge."""
    monkeypatch.setattr("ragmeter.scorers.llm.admission.PATIENCE", 0.0)  # its clock stands still
    now = 0.0
    port = free_port()
    asked = Asked(f"http://127.0.0.1:{port}/v1", clock=lambda: now, concurrency=4, retries=1)

    async def scenario() -> None:
        nonlocal now
        with llama_server(tmp_path, port=port) as first:
            before = await asked.ask(question(5))
            assert asked.client.served is not None
            assert asked.client.served.model == MODEL
            assert asked.client.served.system_fingerprint
            long = [question(number, schema=LONG, tokens=9000) for number in range(4)]
            calls = [asyncio.create_task(asked.fails(one)) for one in long]
            await until_async(lambda: asked.client.in_flight == 4)
            await asyncio.sleep(0.3)
            assert asked.client.in_flight == 4, "the answers should take longer"
            first.kill()
            reasons = {failed.reason for failed in await asyncio.gather(*calls)}
            assert reasons == {"judge_error"}
        for number in range(20):
            await asked.fails(question(number))
        assert asked.client.is_down
        sent = len(asked.attempts)
        assert (await asked.fails(question())).reason == "judge_unavailable"
        assert len(asked.attempts) == sent < 20, "an open breaker sends nothing"
        assert set(asked.outcomes) == {"ok", "connection"}

        with llama_server(tmp_path, name="another", port=port):
            now += 120
            after = await asked.ask(question(5))
        assert not asked.client.is_down
        assert after.fingerprint != before.fingerprint
        ((old, new),) = asked.changes
        assert (old.model, new.model) == (MODEL, "another")

    run(asked, scenario)
