"""The chart through a real Helm: every value file is linted, rendered and checked by schemas."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import pytest
import yaml
from ragmeter.app.settings import load_settings

from deploy.chart import CHART
from tests.deploy.charts import (
    LOADER,
    NEWEST,
    VALUE_FILES,
    Object,
    container,
    helm,
    one,
    pod,
    refused,
    render,
    wrong,
)

pytestmark = pytest.mark.real

OLDEST, NATIVE = "1.27.0", "1.29.0"
EVERY = pytest.mark.parametrize("values", VALUE_FILES, ids=lambda path: path.stem)


@functools.cache
def rendered(name: str) -> tuple[Object, ...]:
    path = CHART / "ci" / f"{name}-values.yaml"
    return tuple(render(path))


def settings_of(objects: tuple[Object, ...] | list[Object]) -> Object:
    (config,) = [item for item in objects if item["metadata"]["name"].endswith("-config")]
    tree: Object = yaml.safe_load(config["data"]["ragmeter.yaml"])
    return tree


def test_every_mode_and_feature_has_a_value_file() -> None:
    names = {path.stem.removesuffix("-values") for path in VALUE_FILES}
    assert {"default", "standalone", "worker", "worker-hpa", "worker-keda"} <= names
    assert {"sidecar-native", "sidecar-classic", "hhem", "network-policy", "ingress"} <= names


@EVERY
def test_lint(values: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "--kube-version", NEWEST, "--values", str(values))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@EVERY
def test_objects_satisfy_the_schemas_of_kubernetes(values: Path) -> None:
    name = values.stem.removesuffix("-values")
    objects = list(rendered(name))
    assert objects
    oldest = NATIVE if name == "sidecar-native" else OLDEST
    for version in (oldest, NEWEST):
        assert wrong(objects, version) == []


@EVERY
def test_renders_for_the_oldest_kubernetes(values: Path) -> None:
    name = values.stem.removesuffix("-values")
    oldest = NATIVE if name == "sidecar-native" else OLDEST
    assert render(values, "--kube-version", oldest) == list(rendered(name))


@EVERY
def test_settings_are_taken_by_the_agent(values: Path, tmp_path: Path) -> None:
    tree = settings_of(rendered(values.stem.removesuffix("-values")))
    if "kafka" not in load_settings().model_dump():  # an agent without workers has no such section
        tree.pop("kafka", None)
    path = tmp_path / "ragmeter.yaml"
    path.write_text(json.dumps(tree))
    settings = load_settings(path, environ={})
    assert settings.http.host == "0.0.0.0"
    assert str(settings.state.path) == "/var/lib/ragmeter/state.sqlite"


@EVERY
def test_names_and_labels(values: Path) -> None:
    objects = rendered(values.stem.removesuffix("-values"))
    keys = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(keys)) == len(keys)
    for item in objects:
        assert len(item["metadata"]["name"]) <= 63
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "ragmeter"
        assert item["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


@EVERY
def test_nothing_runs_as_root_or_writes_its_root_file_system(values: Path) -> None:
    for item in rendered(values.stem.removesuffix("-values")):
        spec = item["spec"] if item["kind"] == "Pod" else None
        if item["kind"] in ("StatefulSet", "Deployment", "Job"):
            spec = item["spec"]["template"]["spec"]
        if spec is None:
            continue
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in spec["containers"]:
            context = each["securityContext"]
            assert context["runAsUser"] == 10001
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert set(each["resources"]) == {"requests", "limits"}


def test_standalone_keeps_its_state_on_a_volume() -> None:
    objects = rendered("standalone")
    workload = one(objects, "StatefulSet")["spec"]
    (claim,) = workload["volumeClaimTemplates"]
    assert workload["replicas"] == 1
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    mounts = {each["name"]: each["mountPath"] for each in container(objects)["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == "/var/lib/ragmeter"
    assert claim["metadata"]["name"] not in {each["name"] for each in pod(objects)["volumes"]}


def test_the_state_may_lie_on_a_volume_of_ones_own() -> None:
    mount = {"name": "fast", "mountPath": "/data"}
    given = {"extraVolumes": [{"name": "fast", "emptyDir": {}}], "extraVolumeMounts": [mount]}
    objects = render({"config": {"state": {"path": "/data/s.sqlite"}}, **given})
    assert "/data/s.sqlite" in one(objects, "ConfigMap")["data"]["ragmeter.yaml"]


def test_claim_that_exists_and_no_claim() -> None:
    for name, source in [
        ("existing-claim", {"persistentVolumeClaim": {"claimName": "ragmeter-restored"}}),
        ("placement", {"emptyDir": {"sizeLimit": "2Gi"}}),
    ]:
        objects = rendered(name)
        assert "volumeClaimTemplates" not in one(objects, "StatefulSet")["spec"]
        (state,) = [each for each in pod(objects)["volumes"] if each["name"] == "ragmeter-state"]
        assert {"name": "ragmeter-state", **source} == state


def test_integers_stay_integers() -> None:
    limits = settings_of(rendered("standalone"))["limits"]
    assert limits == {"body_bytes": 20_971_520, "drain_seconds": 12.5}
    trigger = one(rendered("worker-keda"), "ScaledObject")["spec"]["triggers"][0]
    assert trigger["metadata"]["threshold"] == "1000000"


def test_secrets_are_mounted_by_reference() -> None:
    objects = rendered("standalone")
    (volume,) = [each for each in pod(objects)["volumes"] if each["name"] == "ragmeter-secrets"]
    (source,) = volume["projected"]["sources"]
    assert source == {
        "secret": {"name": "judge", "items": [{"key": "api-key", "path": "judge-api-key"}]}
    }
    path = settings_of(objects)["judge"]["api_key_file"]
    assert path == "/etc/ragmeter/secrets/judge-api-key"
    telemetry, salt = container(objects)["env"]
    assert telemetry == {"name": "ORT_DISABLE_TELEMETRY", "value": "1"}
    assert salt["valueFrom"] == {"secretKeyRef": {"name": "ragmeter", "key": "session-salt"}}
    assert all(item["kind"] != "Secret" for item in objects)


def test_probes_ask_the_agent() -> None:
    found = container(rendered("default"))
    paths = {
        kind: found[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "liveness", "readiness")
    }
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    ports = {each["name"]: each["containerPort"] for each in found["ports"]}
    assert ports == {"otlp-http": 4318, "metrics": 9464}
    assert found["readinessProbe"]["httpGet"]["port"] == "metrics"


@pytest.mark.parametrize(
    ("name", "seconds"), [("default", 30), ("standalone", 33), ("placement", 60), ("worker", 30)]
)
def test_grace_period_fits_the_drain(name: str, seconds: int) -> None:
    assert pod(rendered(name))["terminationGracePeriodSeconds"] == seconds


def test_names_that_look_like_numbers_are_names() -> None:
    arguments = ["template", "123", str(CHART), "--namespace", "456", "--kube-version", NEWEST]
    arguments += ["--set", "config.http.accept={open,plain}"]
    arguments += ["--set", "serviceMonitor.enabled=true,dashboards.enabled=true"]
    arguments += ["--set-string", "nameOverride=1e3,priorityClassName=10"]
    arguments += ["--set-string", "serviceMonitor.namespace=7"]
    arguments += ["--set-string", "secrets.httpToken.existingSecret=9,secrets.httpToken.key=8"]
    done = helm(*arguments)
    assert done.returncode == 0, done.stderr
    objects = [item for item in yaml.load_all(done.stdout, LOADER) if item]
    assert {item["metadata"]["namespace"] for item in objects} == {"456", "7"}
    assert wrong(objects, NEWEST) == []


def test_hook_of_helm_test_asks_the_service() -> None:
    objects = rendered("standalone")
    test = one(objects, "Pod")
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    code = test["spec"]["containers"][0]["command"][-1]
    compile(code, "test", "exec")
    service = one(objects, "Service")
    assert f"http://{service['metadata']['name']}:{service['spec']['ports'][-1]['port']}/" in code
    # the Service must not take it for the agent
    assert test["metadata"]["labels"]["app.kubernetes.io/component"] != "standalone"


def test_ports_follow_the_settings() -> None:
    objects = render({"config": {"http": {"otlp_port": 14318, "metrics_port": 19464}}})
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    assert ports == {"otlp-http": 14318, "metrics": 19464}
    assert [each["port"] for each in one(objects, "Service")["spec"]["ports"]] == [14318, 19464]


def test_the_service_has_the_families_that_are_asked_for() -> None:
    plain = render({})
    spec = one(plain, "Service")["spec"]
    assert "ipFamilyPolicy" not in spec
    assert "ipFamilies" not in spec
    assert settings_of(plain)["http"]["host"] == "0.0.0.0"
    families = ["IPv6", "IPv4"]
    service = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": families}
    both = render({"service": service})
    spec = one(both, "Service")["spec"]
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == ("PreferDualStack", families)
    assert settings_of(both)["http"]["host"] == "*"  # ragmeter listens on both, too
    assert wrong(both, NEWEST) == []
    assert "ipFamilyPolicy" in refused({"service": {"ipFamilyPolicy": "Both"}})


def test_pods_are_replaced_when_the_settings_change() -> None:
    def checksum(values: Object) -> str:
        template = one(render(values), "StatefulSet")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({})
    assert checksum({}) != checksum({"config": {"segments": ["model"]}})
    rule = {"name": "RagUnscoredElevated", "enabled": False}
    assert checksum({}) != checksum({"alertRules": [rule]})


def test_rules_are_those_of_prometheus_and_dashboards_those_of_grafana() -> None:
    objects = rendered("standalone")
    rules = one(objects, "PrometheusRule")
    assert rules["spec"] == yaml.load(
        (CHART / "files" / "ragmeter.rules.yaml").read_text(encoding="utf-8"), LOADER
    )
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    maps = {
        name: json.loads(text)
        for item in objects
        if item["kind"] == "ConfigMap" and "grafana_dashboard" in item["metadata"]["labels"]
        for name, text in item["data"].items()
    }
    assert maps == {
        path.name: json.loads(path.read_text())
        for path in (CHART / "files" / "dashboards").glob("*.json")
    }


def test_rules_link_to_where_the_runbooks_are_published() -> None:
    alerts = {"runbook_url": "https://wiki.test/rag/"}
    config = {"http": {"accept": ["open", "plain"]}, "alerts": alerts}
    objects = render({"config": config, "prometheusRule": {"enabled": True}})
    links = [
        rule["annotations"]["runbook_url"]
        for group in one(objects, "PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert links
    assert all(link.startswith("https://wiki.test/rag/") for link in links)
    assert "https://wiki.test/rag/error-budget.md" in links


def test_dashboard_is_not_taken_for_a_template(tmp_path: Path) -> None:
    chart = tmp_path / "ragmeter"
    shutil.copytree(CHART, chart)
    board = {"title": "T", "panels": [{"targets": [{"legendFormat": "{{service}} {{window}}"}]}]}
    folder = chart / "files" / "dashboards"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "service.json").write_text(json.dumps(board, indent=2) + "\n")
    values = {"dashboards": {"enabled": True, "namespace": "grafana"}}
    objects = render(values, chart=chart)
    (found,) = [item for item in objects if item["metadata"]["namespace"] == "grafana"]
    assert found["metadata"]["name"] == "demo-ragmeter-dashboard-service"
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {name: json.loads(text) for name, text in found["data"].items()} == {
        "service.json": board
    }
    assert wrong(objects, NEWEST) == []


def test_own_alert_rules_reach_the_agent() -> None:
    objects = rendered("alert-rules")
    config = one([item for item in objects if item["kind"] == "ConfigMap"], "ConfigMap")
    assert yaml.safe_load(config["data"]["rules.yaml"])[0]["name"] == "RagUnscoredElevated"
    assert settings_of(objects)["alerts"]["rules"] == "/etc/ragmeter/config/rules.yaml"
    groups = one(objects, "PrometheusRule")["spec"]["groups"]
    assert groups[-1]["name"] == "ours"
    assert (
        groups[:-1]
        == yaml.load((CHART / "files" / "ragmeter.rules.yaml").read_text(encoding="utf-8"), LOADER)[
            "groups"
        ]
    )


def test_hhem_has_its_own_model_and_no_image() -> None:
    objects = rendered("hhem")
    assert container(objects)["image"] == "ragmeter:0.1.0"
    mounts = {each["name"]: each for each in container(objects)["volumeMounts"]}
    assert mounts["ragmeter-hhem"]["mountPath"] == settings_of(objects)["hhem"]["path"]
    assert mounts["ragmeter-hhem"]["subPath"] == "hhem-2.1-open"


def test_placement() -> None:
    objects = rendered("placement")
    spec = pod(objects)
    assert container(objects)["image"].startswith("registry.example.com:5000/team/ragmeter@sha256:")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["serviceAccountName"] == "observers"
    assert spec["priorityClassName"] == "system-cluster-critical"
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    selector = one(objects, "StatefulSet")["spec"]["selector"]
    assert spread["labelSelector"] == selector
    assert not [item for item in objects if item["kind"] == "ServiceAccount"]


def test_network_policy_lets_in_what_is_named() -> None:
    policy = one(rendered("network-policy"), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ports = {rule["ports"][0]["port"]: list(rule["from"][0]) for rule in policy["ingress"]}
    assert ports == {9464: ["namespaceSelector"], 4318: ["podSelector"]}
    assert [port["port"] for port in policy["egress"][0]["ports"]] == [53, 53]
    assert policy["egress"][1]["ports"] == [{"port": 9093}]
