"""The embedder against llama.cpp's own server, with a tiny random model: the vectors mean nothing,
server and protocol are real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr
from ragmeter.config.scoring import EmbeddingSettings
from ragmeter.core.arithmetic import cosine_similarity
from ragmeter.scorers.llm.embeddings import EmbeddingClient, EmbeddingFailed

from tests.scorers.judge.real_server import KEY, MODEL, LlamaServer, llama_server

pytestmark = [pytest.mark.real, pytest.mark.slow]

T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with llama_server(tmp_path_factory.mktemp("llama"), embeddings=True) as running:
        yield running


def asking(
    server: LlamaServer, work: Callable[[EmbeddingClient], Awaitable[T]], **changes: Any
) -> T:
    async def main() -> T:
        options = {"api_key": SecretStr(KEY), "timeout_seconds": 120.0, **changes}
        settings = EmbeddingSettings(base_url=server.base_url, model=MODEL, **options)
        one = EmbeddingClient(settings)
        try:
            return await work(one)
        finally:
            await one.aclose()

    return asyncio.run(main())


def trouble(server: LlamaServer, text: str = "Hello", **changes: Any) -> str:
    async def work(one: EmbeddingClient) -> str:
        with pytest.raises(EmbeddingFailed) as found:
            await one.embed([text, "other"])
        return found.value.trouble

    return asking(server, work, **changes)


def test_vectors_of_a_real_server(server: LlamaServer) -> None:
    texts = ["Hold the button.", "hold THE button", "Zebras sleep standing."]
    found = asking(server, lambda one: one.embed(texts))
    again = asking(server, lambda one: one.embed(texts[::-1]))
    assert found.served == MODEL
    assert {len(vector) for vector in found.vectors} == {32}
    for one, same in zip(found.vectors, again.vectors[::-1], strict=True):
        assert cosine_similarity(one, same) == pytest.approx(1, abs=1e-4), (
            "in the order of the texts"
        )
    other = cosine_similarity(found.vectors[0], found.vectors[2])
    assert other is not None
    assert other < 0.999


def test_what_a_real_server_refuses(server: LlamaServer) -> None:
    assert trouble(server, api_key=SecretStr("wrong")) == "refused"
    assert trouble(server, "much too long " * 4000) == "refused", "with status 500"


def test_one_that_stands_still_is_a_timeout(server: LlamaServer) -> None:
    with server.standing_still():
        assert trouble(server, timeout_seconds=0.5, retries=0) == "timeout"
