"""The sidecar in an application chart (helm/examples) and as a plain manifest (deploy/samples)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ragmeter.app.settings import load_settings

from tests.deploy.charts import NEWEST, Object, container, helm, one, render, wrong
from tests.deploy.tools import ROOT

pytestmark = pytest.mark.real

Render = Callable[..., list[Object]]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Renders the example, with this chart packed into it as Helm does it."""
    folder = tmp_path_factory.mktemp("charts")
    shutil.copytree(ROOT / "helm", folder / "helm")
    chart = folder / "helm" / "examples" / "support-bot"
    done = helm("dependency", "build", str(chart))
    assert done.returncode == 0, done.stderr
    linted = helm("lint", "--strict", str(chart), "--kube-version", NEWEST)
    assert linted.returncode == 0, linted.stdout

    def rendered(values: Object, *more: str) -> list[Object]:
        return render(values, *more, chart=chart)

    return rendered


def spec_of(objects: list[Object]) -> Object:
    found: Object = one(objects, "Deployment")["spec"]["template"]["spec"]
    return found


def test_native_sidecar_starts_first_and_ends_last(application: Render) -> None:
    objects = application({})
    spec = spec_of(objects)
    (sidecar,) = spec["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert [each["name"] for each in spec["containers"]] == ["support-bot"]
    assert spec["terminationGracePeriodSeconds"] == 30 + 30
    assert wrong(objects, "1.29.0") == wrong(objects, NEWEST) == []


def test_classic_sidecar_outlasts_the_application(application: Render) -> None:
    objects = application({"ragmeter": {"sidecar": {"type": "classic", "preStopSeconds": 7}}})
    spec = spec_of(objects)
    assert "initContainers" not in spec
    assert [each["name"] for each in spec["containers"]] == ["support-bot", "ragmeter"]
    assert container(objects)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert spec["terminationGracePeriodSeconds"] == 30 + 7 + 30
    assert wrong(objects, "1.27.0") == wrong(objects, NEWEST) == []


@pytest.mark.parametrize("kind", ["native", "classic"])
def test_application_notices_nothing_of_the_sidecar(application: Render, kind: str) -> None:
    objects = application({"ragmeter": {"sidecar": {"type": kind}}})
    found = container(objects)
    # a startup probe would hold up the application, a readiness probe take it out of its Service
    assert {name for name in found if name.endswith("Probe")} == {"livenessProbe"}
    assert found["securityContext"]["runAsNonRoot"] is True
    assert set(found["resources"]) == {"requests", "limits"}
    spec = spec_of(objects)
    assert "securityContext" not in spec  # the Pod is the application's
    assert all(each["name"].startswith("ragmeter-") for each in spec["volumes"])
    assert {each["name"] for each in found["volumeMounts"]} == {
        each["name"] for each in spec["volumes"]
    }


def test_readiness_probe_can_be_asked_for(application: Render) -> None:
    found = container(application({"ragmeter": {"sidecar": {"readinessProbe": True}}}))
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "ragmeter-http"}


def test_application_sends_to_the_sidecars_port(application: Render) -> None:
    objects = application({"ragmeter": {"config": {"http": {"otlp_port": 14318}}}})
    app = spec_of(objects)["containers"][0]
    given = {each["name"]: each["value"] for each in app["env"]}
    assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:14318"
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    assert ports["ragmeter-otlp"] == 14318


def test_monitor_selects_the_applications_pods(application: Render) -> None:
    objects = application({})
    template = one(objects, "Deployment")["spec"]["template"]
    monitor = one(objects, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {each["name"] for each in container(objects)["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports


def test_pods_mount_the_settings_and_follow_their_changes(application: Render) -> None:
    def checksum(objects: list[Object]) -> str:
        template = one(objects, "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["ragmeter/config-checksum"])

    objects = application({})
    volumes = {each["name"]: each for each in spec_of(objects)["volumes"]}
    config = one(objects, "ConfigMap")
    assert volumes["ragmeter-config"]["configMap"]["name"] == config["metadata"]["name"]
    assert checksum(objects) != checksum(application({"ragmeter": {"config": {"segments": ["a"]}}}))


def test_application_without_it(application: Render) -> None:
    objects = application({"ragmeter": {"enabled": False}})
    assert [item["kind"] for item in objects] == ["Deployment"]
    assert [each["name"] for each in spec_of(objects)["containers"]] == ["support-bot"]
    assert wrong(objects, NEWEST) == []


def test_plain_manifest(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "samples" / "sidecar.yaml").read_text(encoding="utf-8")
    objects = list(yaml.safe_load_all(text))
    assert wrong(objects, "1.29.0") == wrong(objects, NEWEST) == []
    path = tmp_path / "ragmeter.yaml"
    path.write_text(one(objects, "ConfigMap")["data"]["ragmeter.yaml"])
    assert load_settings(path, environ={}).http.host == "0.0.0.0"


def test_plain_manifest_is_as_the_chart_has_it(application: Render) -> None:
    """But for what a template adds: names, and settings that a manifest leaves at their default."""
    text = (ROOT / "deploy" / "samples" / "sidecar.yaml").read_text(encoding="utf-8")
    plain = container(list(yaml.safe_load_all(text)))
    made = container(application({}))
    for key in ("image", "args", "restartPolicy", "resources", "securityContext", "volumeMounts"):
        assert plain[key] == made[key]
