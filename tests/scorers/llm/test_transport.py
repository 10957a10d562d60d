from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc

import httpx
import pytest
from aiohttp import web
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed
from ragmeter.scorers.llm.transport import make_http_client

from tests.ports import free_port
from tests.scorers.judge.asking import completion, question
from tests.scorers.judge.stub_judge import StubJudge


def request(url: str, body: bytes = b"{}") -> httpx.Request:
    return httpx.Request("POST", url, content=body, headers={"content-type": "application/json"})


def test_it_is_an_httpx_client() -> None:
    async def main() -> None:
        async with StubJudge() as stub:
            client = make_http_client(stub.base_url)
            body = {"messages": [{"role": "user", "content": "ü"}]}
            response = await client.send(
                request(f"{stub.base_url}/chat/completions", json.dumps(body).encode()),
                stream=True,
            )
            assert response.status_code == 200
            assert json.loads(await response.aread())["model"] == "stub-1"
            assert response.headers["content-type"].startswith("application/json")
            assert stub.bodies == [body]
            await client.aclose()

    asyncio.run(main())


def test_a_refused_connection_is_a_connect_error_without_the_address() -> None:
    async def main() -> None:
        url = f"http://user:secret@127.0.0.1:{free_port()}/v1"
        client = make_http_client(url)
        with pytest.raises(httpx.ConnectError) as caught:
            await client.send(request(url))
        assert "secret" not in str(caught.value)
        await client.aclose()

    asyncio.run(main())


def test_a_host_that_can_have_no_name_is_a_connect_error() -> None:
    async def main() -> None:
        client = make_http_client("http://h/v1")
        with pytest.raises(httpx.ConnectError):
            await client.send(request(f"http://{'a' * 64}.invalid/v1"))
        await client.aclose()

    asyncio.run(main())


def test_connections_are_used_again() -> None:
    async def main() -> int:
        peers = set()

        async def handle(request: web.BaseRequest) -> web.Response:
            assert request.transport is not None
            peers.add(request.transport.get_extra_info("peername"))
            return web.json_response(completion())

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        client = JudgeClient(JudgeSettings(base_url=f"http://127.0.0.1:{port}", model="asked-1"))
        for _ in range(10):
            await client.ask(question(), ScoringCost())
        await client.aclose()
        await runner.cleanup()
        return len(peers)

    assert asyncio.run(main()) == 1


def test_a_huge_reply_is_left_unread_and_its_connection_closed() -> None:
    async def main() -> None:
        async with StubJudge(script=["huge"]) as stub:
            client = JudgeClient(JudgeSettings(base_url=stub.base_url, model="asked-1"))
            with pytest.raises(JudgeFailed, match="too_large"):
                await client.ask(question(), ScoringCost())
            await client.ask(question(), ScoringCost())
            await client.aclose()

    asyncio.run(main())


def test_a_reply_that_swells_when_decoded_is_bounded() -> None:
    bomb = gzip.compress(b" " * 100_000_000)

    async def swollen(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", swollen)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        client = JudgeClient(JudgeSettings(base_url=f"http://127.0.0.1:{port}/v1", model="m"))
        tracemalloc.start()
        try:
            with pytest.raises(JudgeFailed, match="too_large"):
                await client.ask(question(), ScoringCost())
            assert tracemalloc.get_traced_memory()[1] < 8_000_000
        finally:
            tracemalloc.stop()
            await client.aclose()
            await runner.cleanup()

    asyncio.run(main())


def test_user_and_password_of_the_address_are_sent_as_basic_authorization() -> None:
    async def main() -> None:
        async with StubJudge() as stub:
            base = stub.base_url.replace("http://", "http://me:pass@")
            client = JudgeClient(JudgeSettings(base_url=base, model="asked-1"))
            await client.ask(question(), ScoringCost())
            assert stub.headers[0]["authorization"] == "Basic bWU6cGFzcw=="
            assert "pass" not in client.endpoint
            assert "pass" not in json.dumps(client.state())
            await client.aclose()

    asyncio.run(main())


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with StubJudge() as stub:  # takes any path: good enough for a proxy
            proxy = stub.base_url.removesuffix("/v1")
            monkeypatch.setenv("http_proxy", proxy)
            client = JudgeClient(JudgeSettings(base_url="http://judge.invalid/v1", model="asked-1"))
            await client.ask(question(), ScoringCost())
            assert stub.headers[0]["host"] == "judge.invalid"
            await client.aclose()
            monkeypatch.setenv("no_proxy", "judge.invalid")
            client = JudgeClient(
                JudgeSettings(base_url="http://judge.invalid/v1", model="asked-1"), retries=0
            )
            with pytest.raises(JudgeFailed):
                await client.ask(question(), ScoringCost())
            await client.aclose()

    asyncio.run(main())


def test_another_httpx_client_does_as_well() -> None:
    async def main() -> None:
        async with StubJudge() as stub, httpx.AsyncClient() as http:
            settings = JudgeSettings(base_url=stub.base_url, model="asked-1", api_key="sk-1")
            client = JudgeClient(settings, http=http)
            await client.ask(question(), ScoringCost())
            assert stub.headers[0]["authorization"] == "Bearer sk-1"

    asyncio.run(main())
