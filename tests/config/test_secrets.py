"""A secret in every setting that can hold one, and a search through all that ragmeter shows.

The settings are found by their type: a new one fails here until it is planted, too.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel, SecretStr
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError, dump_settings
from ragmeter.config.settings import Settings
from ragmeter.server.access import AccessPolicy

from tests.crash import RAGMETER, start
from tests.ports import free_port
from tests.tables import each_row
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
MARK = "hush0123456789"  # in every secret, so that one search finds them all
SECONDS = 300
DEAD = "http://127.0.0.1:9"  # nobody listens there


def secret(name: str) -> str:
    return f"{name}-{MARK}"


PLANTED: dict[str, Any] = {
    "http": {"token": secret("all"), "send_token": secret("s"), "scrape_token": secret("m")},
    "judge": {
        "base_url": f"http://u:{MARK}@127.0.0.1:9/v1",
        "model": "m",
        "api_key": secret("judge"),
        "second": {"base_url": f"{DEAD}/v1", "model": "n", "api_key": secret("second")},
    },
    "sampling": {"judge": 1.0},
    "otlp": {"session_salt": secret("session")},
    "privacy": {"content": "hash", "hash_key": secret("hash")},
    "resolvers": {
        "sources": [{"name": "kb", "url": f"{DEAD}/{{id}}", "headers": f"Authorization: {MARK}"}]
    },
    "results_export": {"endpoint": DEAD, "headers": f"authorization={MARK}"},
    "kafka": {
        "security": {
            "protocol": "SASL_SSL",
            "mechanism": "PLAIN",
            "username": "u",
            "password": secret("kafka"),
        }
    },
    "alerts": {
        "webhook_url": f"http://u:{MARK}@127.0.0.1:9/services/{MARK}?key={MARK}",
        "alertmanager_url": f"http://u:{MARK}@127.0.0.1:9",
    },
}
# Kafka's credentials exclude one another.
PLANTED_TOKEN: dict[str, Any] = PLANTED | {
    "kafka": {
        "security": {
            "protocol": "SASL_SSL",
            "mechanism": "OAUTHBEARER",
            "oauth": {
                "token_url": DEAD,
                "client_id": "c",
                "client_secret": secret("oauth"),
            },
        }
    }
}


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)


def holds_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(holds_secret(one) for one in get_args(annotation))


def secret_settings(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Every key of the type, in lists and maps of sections too."""
    for name, field in model.model_fields.items():
        if holds_secret(field.annotation):
            yield f"{prefix}{name}"
        for inner in models(field.annotation):
            yield from secret_settings(inner, f"{prefix}{name}.")


def planted(tree: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from planted(value, f"{prefix}{key}.")
    elif isinstance(tree, list):
        for value in tree:
            yield from planted(value, prefix)
    elif MARK in str(tree):
        yield prefix[:-1]


def test_a_secret_is_planted_in_every_setting_of_the_type() -> None:
    found = set(secret_settings())
    assert {"http.token", "resolvers.sources.headers", "judge.second.api_key"} <= found
    assert found <= {*planted(PLANTED), *planted(PLANTED_TOKEN)}


@pytest.mark.parametrize("tree", [PLANTED, PLANTED_TOKEN], ids=["password", "token"])
def test_no_secret_is_in_a_dump_or_a_representation(tree: dict[str, Any]) -> None:
    settings = load_settings(environ={}, overrides=tree)
    shown = [dump_settings(settings), repr(settings), str(settings), f"{settings.http!r}"]
    shown += [repr(AccessPolicy(settings)), repr(vars(AccessPolicy(settings)).get("_tokens"))]
    # addresses hold theirs in plain, which `dump` takes out
    assert MARK not in shown[0]
    assert all(secret(name) not in text for name in ("all", "s", "m", "judge") for text in shown)


@each_row("key", sorted(secret_settings()))
@each_row("wrong", [[MARK], {"x": MARK}, [{"x": [MARK]}]], ids=["list", "map", "deep"])
def test_no_secret_is_in_a_mistake_about_it(key: str, wrong: object) -> None:
    tree = copy.deepcopy(PLANTED_TOKEN if ".oauth." in key else PLANTED)
    node: Any = tree
    *sections, leaf = key.split(".")
    for name in sections:
        node = node[name]
        node = node[0] if isinstance(node, list) else node
    node[leaf] = wrong
    with pytest.raises(ConfigError) as error:
        load_settings(environ={}, overrides=tree)
    assert MARK not in str(error.value)
    name = "RAGMETER_" + key.upper().replace(".", "__")
    broken = "{" + MARK  # broken JSON
    with pytest.raises(ConfigError) as error:
        load_settings(environ={name: broken})
    assert MARK not in str(error.value)


def test_no_secret_is_in_a_crash() -> None:
    settings = load_settings(environ={}, overrides=PLANTED)
    try:
        raise RuntimeError(
            f"with everything that is at hand: {settings.http} {settings.judge.second}"
        )
    except RuntimeError:
        text = traceback.format_exc()
    assert MARK not in text
    assert "SecretStr('**********')" in text


def test_no_secret_is_in_a_log_that_shows_the_settings(caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings(environ={}, overrides=PLANTED)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("ragmeter").debug("%r %s", settings.http, settings.otlp)
    assert MARK not in caplog.text
    assert MARK.encode() in pickle.dumps(settings), "what is searched for is there"


def everything_shown(page: str) -> dict[str, str]:
    login = {"Authorization": f"Bearer {secret('all')}"}
    paths = [
        "/",
        "/metrics",
        "/metrics/detail",
        "/api/windows.json",
        "/api/questions.json",
        "/readyz",
        "/healthz",
        "/service/bot",
    ]
    paths += ["/trace/bot/t1", "/v1/baselines", "/nothing", f"/{MARK[:3]}"]
    found = {}
    for path in paths:
        for headers in ({}, login):
            answer = httpx.get(f"{page}{path}", headers=headers, timeout=PATIENCE, trust_env=False)
            found[f"{path} {len(headers)}"] = f"{answer.headers}\n{answer.text}"
    return found


def test_no_secret_is_in_anything_that_a_run_shows(tmp_path: Path) -> None:
    otlp, metrics = free_port(), free_port()
    tree = copy.deepcopy(PLANTED)
    tree["http"] |= {"otlp_port": otlp, "metrics_port": metrics}
    tree["alerts"]["evaluation_seconds"] = 1
    tree["state"] = {"path": str(tmp_path / "s.sqlite")}
    rules = tmp_path / "rules.yaml"  # one that fires at once, so that receivers are tried
    rules.write_text(
        "rules: [{name: AnyError, severity: critical, metric: error, op: '>', threshold: 0.1,"
        " window: 5m, for: 0s, summary: 'errors'}]"
    )
    tree["alerts"]["rules"] = str(rules)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(tree))
    config.chmod(0o600)
    process = start(tmp_path, "--verbose", "run", "-c", str(config))
    try:
        page, traces = f"http://127.0.0.1:{metrics}", f"http://127.0.0.1:{otlp}"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                httpx.get(f"{page}/healthz", trust_env=False, timeout=PATIENCE)
                break
            except httpx.HTTPError:
                assert process.poll() is None, (tmp_path / "talk.txt").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        rows = [
            {
                "trace_id": f"t{number}",
                "service": "bot",
                "query": "q?",
                "answer": "a [1].",
                "timestamp": datetime.now(UTC).isoformat(),
                "status": "error",
                "passages": [{"id": "kb-1"}],
            }
            for number in range(60)
        ]
        login = {"Authorization": f"Bearer {secret('s')}"}
        sent = httpx.post(
            f"{traces}/v1/rag/traces", json=rows, headers=login, trust_env=False, timeout=PATIENCE
        )
        assert sent.status_code == 200
        httpx.post(
            f"{traces}/v1/rag/traces",
            content=b"broken",
            headers=login,
            trust_env=False,
            timeout=PATIENCE,
        )
        process.send_signal(signal.SIGHUP)
        failed = 'ragmeter_notifications_total{target="webhook"'
        while not all(
            name in (shown := everything_shown(page))["/metrics 1"]
            for name in (failed, "rag_requests_total")
        ):
            assert time.monotonic() < deadline + SECONDS, shown["/metrics 1"]
            time.sleep(1)  # judge, resolver, receivers and webhook are tried and fail
        where = Path(f"/proc/{process.pid}")
        shown["ps"] = (where / "cmdline").read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
    for command in (["config", "show"], ["config", "check"], ["inspect", "--live"]):
        done = subprocess.run(
            [*RAGMETER, *command, "--config", config],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        shown[" ".join(command)] = done.stdout + done.stderr
    for path in tmp_path.iterdir():
        if path != config:
            shown[path.name] = path.read_bytes().decode("latin-1")
    assert "talk.txt" in shown
    assert "s.sqlite" in shown
    assert [name for name, text in shown.items() if MARK in text] == []
