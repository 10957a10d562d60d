"""The stub does what tests and benchmarks rely on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request

import httpx

from tests.scorers.judge.asking import GRADE_SCHEMA
from tests.scorers.judge.stub_answers import by_content
from tests.scorers.judge.stub_judge import StubJudge
from tests.waiting import PATIENCE


def body(text: str) -> dict[str, object]:
    form = {"type": "json_schema", "json_schema": {"schema": GRADE_SCHEMA}}
    return {"messages": [{"role": "user", "content": text}], "response_format": form}


def test_the_same_content_gets_the_same_answer() -> None:
    messages = [{"role": "user", "content": "a"}]
    assert by_content(messages, GRADE_SCHEMA) == by_content(messages, GRADE_SCHEMA)
    others = {
        json.dumps(by_content([{"role": "user", "content": str(n)}], GRADE_SCHEMA))
        for n in range(40)
    }
    assert len(others) == 4


def test_it_counts_calls_tokens_and_how_many_at_once() -> None:
    async def main() -> None:
        async with StubJudge(latency=0.05) as stub, httpx.AsyncClient() as http:
            url = f"{stub.base_url}/chat/completions"
            replies = await asyncio.gather(*(http.post(url, json=body(str(n))) for n in range(5)))
            assert stub.calls == stub.max_in_flight == 5
            assert stub.in_flight == 0
            used = [reply.json()["usage"]["completion_tokens"] for reply in replies]
            assert stub.output_tokens == sum(used)
            assert (await http.get(f"{stub.base_url[:-3]}/stats")).json()["calls"] == 5

    asyncio.run(main())


def test_shares_of_faults_are_drawn_by_seed() -> None:
    async def faults(seed: int) -> list[int]:
        stub = StubJudge(faults={"http_500": 0.3}, seed=seed)
        async with stub, httpx.AsyncClient() as http:
            url = f"{stub.base_url}/chat/completions"
            return [(await http.post(url, json=body("x"))).status_code for _ in range(60)]

    first = asyncio.run(faults(1))
    assert first == asyncio.run(faults(1))
    assert first != asyncio.run(faults(2))
    assert 8 <= first.count(500) <= 28


def test_it_is_a_process_too() -> None:
    command = [sys.executable, "-m", "tests.scorers.judge.stub_judge", "--latency", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            request = urllib.request.Request(
                f"{url}/chat/completions",
                json.dumps(body("x")).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                content = json.load(reply)["choices"][0]["message"]["content"]
            assert json.loads(content)["grade"] in range(4)
        finally:
            process.terminate()
