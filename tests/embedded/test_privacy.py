"""No secret on the disk or on the page: the running agent, and every file that it has written."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.app.embedded_agent import serve_agent
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError, dump_settings
from ragmeter.config.settings import Settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.ingest.span_batches import TRACES, decode_batch
from ragmeter.offline.score_file import score_file

from tests.traces import trace_dict
from tests.waiting import stop_agent

MAIL = "a.person@example.com"
QUOTE = "the albatross circled"


def settings(folder: Path, **privacy: Any) -> Settings:
    paths = {"path": str(folder / "s.sqlite")}
    ports = {"otlp_port": 0, "metrics_port": 0}
    tree = {"state": paths, "http": ports, "privacy": privacy}
    return load_settings(environ={}, overrides=tree)


@contextmanager
def running(folder: Path, **privacy: Any) -> Iterator[EmbeddedAgent]:
    started = EmbeddedAgent(settings(folder, **privacy), [], parts=PARTS)
    started.start()
    try:
        yield started
    finally:
        stop_agent(started, 10)


def everything(folder: Path) -> bytes:
    """All bytes of all files that the agent has written."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def secretive(number: int, secret: str) -> dict[str, Any]:
    return trace_dict(
        number,
        query=f"Who is {secret}?",
        passages=[{"id": "kb-1", "text": f"Of {secret}", "metadata": {"by": secret}}],
        answer=f"It is {secret} for sure, who wrote the manual of the pump [1].",
        error=secret,
        tags={"who": secret},
        unknown=secret,
    )


def feed(agent: EmbeddedAgent, *traces: dict[str, Any], live: bool = False) -> None:
    items = [decode_trace(json.dumps(one).encode(), 10**6) for one in traces]
    agent.accept([(item, n) for n, item in enumerate(items)], "test", live=live, written=set())


@pytest.mark.parametrize("content", ["full", "none"])
def test_nothing_unredacted_is_ever_written(tmp_path: Path, content: str) -> None:
    with running(tmp_path, redact=["email"], content=content) as agent:
        feed(agent, *[secretive(n, MAIL) for n in range(20)])
        broken = DecodeFailure(
            "invalid_json", (("", f"at {MAIL}"),), f'{{"query": "{MAIL}'.encode()
        )
        agent.accept([(broken, 99)], "test", written=set())
        assert MAIL.encode() not in everything(tmp_path)  # while it waits, too
        agent.wait_idle()
        kept = [agent.evidence("bot", f"t{n}") for n in range(20)]
        assert MAIL not in json.dumps(kept)
        replaced = agent.counters.get("ragmeter_redactions_total", (("rule", "email"),))
        assert replaced == 20 * 6
    assert MAIL.encode() not in everything(tmp_path)
    letter = json.loads((tmp_path / "s.sqlite.dead-letters.jsonl").read_text())
    assert letter["not_kept"] == {"bytes": len(broken.raw)}
    assert "raw" not in letter


@pytest.mark.parametrize("content", ["none", "hash"])
def test_no_text_is_left_of_what_was_scored(tmp_path: Path, content: str) -> None:
    with running(tmp_path, content=content, hash_key="k") as agent:
        feed(agent, *[secretive(n, QUOTE) for n in range(20)])
        agent.wait_idle()
        kept = [found for n in range(20) if (found := agent.evidence("bot", f"t{n}"))]
        assert kept
        assert all(one["trace"]["content"] == content for one in kept)
    assert QUOTE.encode() not in everything(tmp_path)  # deleted rows are overwritten


def test_a_stricter_setting_lets_go_of_what_was_kept(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        feed(agent, *[secretive(n, QUOTE) for n in range(5)])
        agent.wait_idle()
        assert agent.evidence("bot", "t0") is not None
    assert QUOTE.encode() in everything(tmp_path)
    with running(tmp_path, content="none") as agent:
        assert agent.evidence("bot", "t0") is None
    assert QUOTE.encode() not in everything(tmp_path)
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as db, db:
        assert db.execute("SELECT value FROM meta WHERE name='content'").fetchone() == ('"none"',)
    db.close()


def test_spans_are_redacted_before_they_wait(tmp_path: Path) -> None:
    attribute = {
        "key": "input.value",
        "value": {"stringValue": json.dumps({"q": MAIL, "n": [MAIL]})},
    }
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "name": "x",
        "startTimeUnixNano": "1",
        "attributes": [attribute, {"key": "user.id", "value": {"stringValue": "u-77"}}],
    }
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    with running(tmp_path, redact=["email"], drop_attributes=["user.*"]) as agent:
        batch, broken = decode_batch(TRACES, "json", body, agent.redactor)
        assert broken is None
        assert len(batch.parts) == 1
        agent.assembly.accept([batch])
        assert agent.counters.get("ragmeter_redactions_total", (("rule", "email"),)) == 2
        found = everything(tmp_path)
        assert b"[email]" in found
        assert MAIL.encode() not in found
        assert b"u-77" not in found


def test_the_ports_take_in_redacted_and_the_page_says_what_is_not_kept(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        found = settings(tmp_path, redact=["email"], content="hash", hash_key="k")
        agent = EmbeddedAgent(found, [], parts=PARTS)
        agent.start()
        try:
            async with serve_agent(agent, found) as (traces, page), httpx.AsyncClient() as client:
                one = {**secretive(1, f"{QUOTE} {MAIL}"), "timestamp": time.time()}
                reply = await client.post(f"{traces}/v1/rag/traces", json=one)
                assert reply.status_code == 200
                await asyncio.to_thread(agent.wait_idle)
                text = (await client.get(f"{page}/trace/bot/t1")).text
                metrics = (await client.get(f"{page}/metrics")).text
        finally:
            stop_agent(agent, 10)
        assert "Texts are not kept" in text
        assert QUOTE not in text
        assert "characters, not kept · " in text
        assert 'ragmeter_redactions_total{rule="email"} 6' in metrics
        assert QUOTE.encode() not in everything(tmp_path)

    asyncio.run(test())


def test_scores_of_a_file_are_redacted_too(tmp_path: Path) -> None:
    async def test() -> None:
        source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        source.write_text(json.dumps(secretive(1, QUOTE)) + "\n")
        await score_file(source, out, "jsonl", settings(tmp_path), lambda line: None)
        assert "pump" in out.read_text()  # the worst sentence is quoted
        strict = settings(tmp_path, content="none")
        await score_file(source, out, "jsonl", strict, lambda line: None)
        assert "pump" not in out.read_text()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"redact": [{"name": "x", "pattern": "(a"}]}, "privacy.redact.0.pattern"),
        (
            {"redact": [{"name": "x", "pattern": "a", "fields": ["nope"]}]},
            "privacy.redact.0.fields",
        ),
        ({"content": "hash"}, "hash_key"),
    ],
)
def test_a_mistake_is_an_error_of_the_configuration(privacy: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_settings(environ={}, overrides={"privacy": privacy})


def test_the_key_is_shown_nowhere() -> None:
    found = load_settings(
        environ={}, overrides={"privacy": {"content": "hash", "hash_key": "hush-7"}}
    )
    assert "hush-7" not in dump_settings(found) + repr(found)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={}, overrides={"privacy": {"hash_key": 123456789}})
    assert "123456789" not in str(caught.value)
    named = load_settings(environ={"RAGMETER_PRIVACY__REDACT": "email,iban"}).privacy.redact
    assert [rule.name for rule in named] == ["email", "iban"]
