"""The embedder against a server that works, hangs, lies and talks nonsense."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from ragmeter.config.scoring import EmbeddingSettings
from ragmeter.scorers.llm.embeddings import EmbeddingClient, EmbeddingFailed, EmbeddingReply
from ragmeter.scorers.llm.exchange import ClientTiming

from tests.scorers.llm.stub_embedding_server import Stub, by_words, stub_embeddings

TEXTS = ["Hold the button.", "Press and hold it."]

NONSENSE = (
    "no_json", "huge", "list", "short", "long", "constant", "ragged", "nan", "infinite", "zero",
    "text", "bool", "empty", "one", "null", "base64", "great", "wide", "no_index", "same_index",
    "bool_index", "list_index", "text_index",
)  # fmt: skip


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


def settings(stub: Stub, **changes: Any) -> EmbeddingSettings:
    return EmbeddingSettings(base_url=stub.base_url, model="m", **changes)


def asked(stub: Stub, times: int = 1, **changes: Any) -> EmbeddingReply | EmbeddingFailed:
    """What the last of so many calls gives, one after the other."""

    async def main() -> EmbeddingReply | EmbeddingFailed:
        options = dict(changes)
        patient = options.pop("patient", True)
        timing = ClientTiming(sleep=no_sleep, monotonic=options.pop("monotonic", time.monotonic))
        one = EmbeddingClient(settings(stub, **options), timing=timing)
        found: EmbeddingReply | EmbeddingFailed = EmbeddingFailed("refused", "")
        try:
            for _ in range(times):
                try:
                    found = await one.embed(TEXTS, patient=patient)
                except EmbeddingFailed as error:
                    found = error
        finally:
            await one.aclose()
        return found

    return asyncio.run(main())


def trouble(found: EmbeddingReply | EmbeddingFailed) -> str:
    assert isinstance(found, EmbeddingFailed), found
    return found.trouble


def test_vectors_come_in_the_order_of_the_texts() -> None:
    with stub_embeddings() as stub:
        found = asked(stub, dimensions=256)
        assert isinstance(found, EmbeddingReply)
        assert found.vectors == [by_words(text) for text in TEXTS]
        assert found.served == "stub-embed"
        assert stub.bodies == [{"model": "m", "dimensions": 256, "input": TEXTS}]


@pytest.mark.parametrize("fault", NONSENSE)
def test_nonsense_is_malformed_and_never_a_vector(fault: str) -> None:
    with stub_embeddings() as stub:
        stub.fault = fault
        assert trouble(asked(stub)) == "malformed"
        assert len(stub.bodies) == 1, "asking again would give the same"


def test_a_server_that_hangs_is_a_timeout() -> None:
    with stub_embeddings() as stub:
        stub.fault = "hang"
        assert trouble(asked(stub, timeout_seconds=0.2, retries=1)) == "timeout"
        assert len(stub.bodies) == 2


@pytest.mark.parametrize(
    ("fault", "expected", "calls"),
    [("http_500", "unavailable", 3), ("disconnect", "unavailable", 3),
     ("http_429", "unavailable", 3), ("http_400", "refused", 1), ("http_413", "refused", 1),
     ("http_404", "refused", 1)],
)  # fmt: skip
def test_failures_and_how_often_they_are_tried(fault: str, expected: str, calls: int) -> None:
    with stub_embeddings() as stub:
        stub.fault = fault
        assert trouble(asked(stub)) == expected
        assert len(stub.bodies) == calls


def test_a_failure_that_passes_costs_nothing() -> None:
    with stub_embeddings() as stub:
        stub.script.extend(["http_500", "disconnect"])
        assert isinstance(asked(stub), EmbeddingReply)


def test_the_key_comes_from_a_file_and_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old\n")
    with stub_embeddings() as stub:
        stub.key = "k"
        assert isinstance(asked(stub, api_key=SecretStr("k")), EmbeddingReply)
        assert trouble(asked(stub)) == "refused"

        async def rotated() -> EmbeddingReply:
            one = EmbeddingClient(settings(stub, api_key_file=file))
            file.write_text("k\n")
            try:
                return await one.embed(TEXTS)
            finally:
                await one.aclose()

        assert isinstance(asyncio.run(rotated()), EmbeddingReply)


def test_who_does_not_wait_is_told_at_once_that_it_is_down() -> None:
    with stub_embeddings() as stub:
        stub.fault = "http_500"
        found = asked(stub, times=40, retries=0, patient=False, monotonic=lambda: 0.0)
        assert trouble(found) == "unavailable"
        assert 10 <= len(stub.bodies) < 25, "the breaker opens"


def test_equal_texts_may_have_equal_vectors() -> None:
    with stub_embeddings() as stub:

        async def main() -> EmbeddingReply:
            one = EmbeddingClient(settings(stub))
            try:
                return await one.embed(["Thirty days.", "thirty days"])
            finally:
                await one.aclose()

        stub.fault = "constant"
        assert len(asyncio.run(main()).vectors) == 2
