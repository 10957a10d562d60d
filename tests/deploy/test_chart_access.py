"""Who may use the ports of what the chart makes: tokens, TLS, and values that leave it open."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.chart import CHART
from tests.deploy.charts import Object, container, one, refused, render
from tests.deploy.test_chart_rendered import rendered, settings_of

pytestmark = pytest.mark.real

SCRAPED = ("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")


def endpoint(objects: Any) -> Object:
    found = [
        item["spec"][key][0] for item in objects for kind, key in SCRAPED if item["kind"] == kind
    ]
    (only,) = found
    return dict(only)


@pytest.mark.parametrize("mode", ["standalone", "sidecar"])
@pytest.mark.parametrize(
    ("http", "words"),
    [
        ({"accept": []}, "secrets.httpToken.existingSecret"),
        ({"accept": ["plain"]}, "config.http.accept: [open]"),
        ({"accept": ["open"]}, "config.http.accept: [plain]"),
    ],
)
def test_nothing_is_open_by_accident(mode: str, http: Object, words: str) -> None:
    assert words in refused({"mode": mode, "config": {"http": http}})


def test_a_refusal_names_all_that_is_missing() -> None:
    words = refused({"mode": "worker", "config": {"http": {"accept": []}}})
    assert "config.kafka.bootstrap_servers" in words
    assert "config.http.accept: [open]" in words
    assert "config.http.accept: [plain]" in words


def test_what_comes_by_the_environment_the_agent_checks() -> None:
    given = [{"name": "RAGMETER_HTTP__ACCEPT", "value": "open,plain"}]
    render({"config": {"http": {"accept": []}}, "extraEnv": given})


def test_tokens_are_mounted_and_prometheus_has_the_narrowest() -> None:
    objects = rendered("token")
    http = settings_of(objects)["http"]
    folder = "/etc/ragmeter/secrets"
    assert http["token_file"] == f"{folder}/http-token"
    assert http["send_token_file"] == f"{folder}/http-send-token"
    assert http["scrape_token_file"] == f"{folder}/http-scrape-token"
    spec = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    (secrets,) = [each for each in spec["volumes"] if each["name"] == "ragmeter-secrets"]
    paths = {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in secrets["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert paths["http-send-token"] == ("ragmeter-tokens", "send")
    found = endpoint(objects)
    assert "scheme" not in found
    assert found["authorization"] == {
        "type": "Bearer",
        "credentials": {"name": "ragmeter-tokens", "key": "scrape"},
    }


def test_tls_reaches_probes_service_and_prometheus() -> None:
    objects = rendered("tls")
    tls = settings_of(objects)["http"]["tls"]
    assert tls == {
        "cert_file": "/etc/ragmeter/secrets/http-tls.crt",
        "key_file": "/etc/ragmeter/secrets/http-tls.key",
    }
    found = container(objects)
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert found[name]["httpGet"]["scheme"] == "HTTPS"
    (service,) = [item for item in objects if item["kind"] == "Service"]
    assert {port["appProtocol"] for port in service["spec"]["ports"]} == {"https"}
    monitor = endpoint(objects)
    assert monitor["scheme"] == "https"
    assert monitor["tlsConfig"] == {
        "ca": {"secret": {"name": "ragmeter-tls", "key": "ca.crt"}},
        "serverName": "demo-ragmeter.rag.svc",
    }
    assert monitor["authorization"]["credentials"] == {"name": "ragmeter-token", "key": "token"}


def test_a_monitor_may_have_its_own() -> None:
    own = {"enabled": True, "tlsConfig": {"insecureSkipVerify": True}}
    own["authorization"] = {"credentials": {"name": "one", "key": "token"}}
    values = {"secrets": {"httpTls": {"existingSecret": "t"}}, "serviceMonitor": own}
    found = endpoint(render(values))
    assert found["tlsConfig"] == own["tlsConfig"]
    assert found["authorization"] == own["authorization"]


def test_a_sidecar_takes_traces_by_loopback_only() -> None:
    objects = rendered("sidecar-token")
    http = settings_of(objects)["http"]
    assert (http["host"], http["otlp_host"]) == ("0.0.0.0", "127.0.0.1")
    assert endpoint(objects)["authorization"]["credentials"]["name"] == "ragmeter-scrape"
    given = {"httpTls": {"existingSecret": "t"}}
    assert "sidecar takes no TLS" in refused({"mode": "sidecar", "secrets": given})


def test_the_test_pod_has_the_token_by_reference() -> None:
    text = (CHART / "templates" / "tests" / "ready.yaml").read_text(encoding="utf-8")
    assert "secretKeyRef" in text
    for name in ("default", "token", "tls"):
        pods = [item for item in rendered(name) if item["kind"] == "Pod"]
        environ = [each.get("env", []) for pod in pods for each in pod["spec"]["containers"]]
        references = [one["valueFrom"]["secretKeyRef"] for env in environ for one in env]
        # over TLS it asks without one: it does not know who answers
        assert len(references) == (1 if name == "token" else 0)
