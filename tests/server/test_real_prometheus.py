"""A real Prometheus scrapes a port that asks for a token and has a certificate, as the docs say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.exporters.fakes import everything
from tests.exporters.test_real_prometheus import ask, value
from tests.kafka_security import make_certificates
from tests.prometheus_server import prometheus
from tests.real import require, require_module
from tests.server.guarded import guarded

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
FIRST, SECOND = "scrape-token-one", "scrape-token-two"


@pytest.mark.real
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_prometheus_scrapes_as_the_docs_say(loop: str, tmp_path: Path) -> None:
    """On the event loop of `ragmeter run`, and on that of `ragmeter worker`."""
    require("prometheus")
    new_loop = require_module("uvloop").new_event_loop if loop == "uvloop" else None
    make_certificates(tmp_path)
    tokens, theirs = tmp_path / "tokens", tmp_path / "credentials"
    tokens.write_text(f"{SECOND}\n{FIRST}\n")  # while the one is replaced by the other
    theirs.write_text(f"{FIRST}\n")
    tls = {"cert_file": str(tmp_path / "server.pem"), "key_file": str(tmp_path / "server.key")}
    (config,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE.read_text(), re.DOTALL)
    with guarded(everything(), new_loop, scrape_token_file=str(tokens), tls=tls) as place:
        config = config.replace("/etc/prometheus/ragmeter-scrape-token", str(theirs))
        config = config.replace("/etc/prometheus/ragmeter-ca.crt", str(tmp_path / "ca.pem"))
        config = config.replace("ragmeter.example.com:9464", place)
        config = f"global: {{scrape_interval: 1s}}\n{config}"
        with prometheus(tmp_path, config) as client:
            p95 = 'rag_latency_seconds{stage="total",quantile="0.95",window="1h"}'
            assert value(client, p95) == 2.5
            (target,) = ask(client, "/targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            assert target["scrapeUrl"] == f"https://{place}/metrics"
