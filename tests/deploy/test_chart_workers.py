"""The workers of the chart: the group, its scaling, and values that contradict each other."""

from __future__ import annotations

import functools

import pytest

from deploy.chart import CHART
from tests.deploy.charts import Object, container, one, pod, refused, render

pytestmark = pytest.mark.real

SASL = {
    "mode": "worker",
    "config": {
        "kafka": {"bootstrap_servers": ["kafka:9092"], "security": {"protocol": "SASL_SSL"}}
    },
}
KAFKA = {"config": {"kafka": {"bootstrap_servers": ["kafka:9092"]}}, "mode": "worker"}
HPA: Object = {"type": "hpa"}


@functools.cache
def rendered(name: str) -> tuple[Object, ...]:
    return tuple(render(CHART / "ci" / f"{name}-values.yaml"))


def test_workers_are_a_deployment_without_a_port_for_traces() -> None:
    objects = rendered("worker")
    workload = one(objects, "Deployment")["spec"]
    assert workload["replicas"] == 3
    assert workload["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert container(objects)["args"][0] == "worker"
    assert container(objects)["image"] == "ragmeter:0.1.0-kafka"
    assert [port["name"] for port in container(objects)["ports"]] == ["metrics"]
    assert [port["name"] for port in one(objects, "Service")["spec"]["ports"]] == ["metrics"]
    (state,) = [each for each in pod(objects)["volumes"] if each["name"] == "ragmeter-state"]
    assert state == {"name": "ragmeter-state", "emptyDir": {}}


def test_budget_lets_one_worker_go() -> None:
    assert one(rendered("worker"), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert one(rendered("worker-hpa"), "PodDisruptionBudget")["spec"]["minAvailable"] == "50%"


def test_topics_are_made_by_a_job_that_waits_for_no_worker() -> None:
    job = one(rendered("worker"), "Job")
    # `helm --wait` runs hooks after the workers are ready, and those wait for their topics
    assert "annotations" not in job["metadata"]
    spec = job["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"][:2] == ["kafka", "init"]
    mounted = {each["name"] for each in spec["containers"][0]["volumeMounts"]}
    assert mounted == {each["name"] for each in spec["volumes"]}
    # a Service or a budget of the workers must not take it for one of them
    labels = job["spec"]["template"]["metadata"]["labels"]
    selector = one(rendered("worker"), "Deployment")["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= labels.items()


def test_the_job_that_makes_topics_is_another_one_where_it_does_another_thing() -> None:
    init = KAFKA | {"worker": {"kafkaInit": {"enabled": True}}, "fullnameOverride": "r" * 50}
    names = [
        one(render(init | more), "Job")["metadata"]["name"]
        for more in ({}, {}, {"image": {"tag": "2"}}, {"alertRules": [{"name": "One"}]})
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert {len(name) for name in names} == {62}  # 63 at most: the Pods have it as a label


def test_autoscaler_by_cpu_and_by_a_metric_of_its_own() -> None:
    objects = rendered("worker-hpa")
    assert "replicas" not in one(objects, "Deployment")["spec"]
    scaler = one(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == one(objects, "Deployment")["metadata"]["name"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 24)
    assert [metric["type"] for metric in scaler["metrics"]] == ["Resource", "External"]
    assert scaler["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert scaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_scaling_by_lag() -> None:
    objects = rendered("worker-keda")
    assert "replicas" not in one(objects, "Deployment")["spec"]
    scaled = one(objects, "ScaledObject")["spec"]
    assert scaled["scaleTargetRef"]["name"] == one(objects, "Deployment")["metadata"]["name"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 16)
    (trigger,) = scaled["triggers"]
    assert trigger == {
        "type": "prometheus",
        "name": "lag",
        "metricType": "Value",
        "metadata": {
            "serverAddress": "http://prometheus.monitoring:9090",
            "query": "max(max_over_time(ragmeter_kafka_lag_seconds"
            '{topic=~"prod[.]rag[.]traces|prod[.]rag[.]scores"}[1m]))',
            "threshold": "1000000",
            "ignoreNullValues": "true",
        },
        "authenticationRef": {"name": "prometheus"},
    }


def test_workers_that_read_spans_are_scaled_by_them_too() -> None:
    keda = {"type": "keda", "keda": {"serverAddress": "http://prometheus:9090"}}
    objects = render(KAFKA | {"autoscaling": keda})
    (trigger,) = one(objects, "ScaledObject")["spec"]["triggers"]
    assert 'topic=~"rag[.]traces|rag[.]scores|rag[.]spans"' in trigger["metadata"]["query"]
    assert "authenticationRef" not in trigger


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"moode": "worker"}, "Additional property moode is not allowed"),
        ({"mode": "cluster"}, "mode must be one of"),
        ({"config": {"limits": {"queues": 5}}}, "Additional property queues is not allowed"),
        (
            {"config": {"judge": {"api_key": "x"}}},
            "name a Secret in secrets.judgeApiKey.existingSecret",
        ),
        ({"secrets": {"judgeApiKey": {"value": "x"}}}, "Additional property value is not allowed"),
        ({"config": {"sampling": {"judge": 2}}}, "Must be less than or equal to 1"),
        ({"mode": "worker"}, "mode worker needs config.kafka.bootstrap_servers"),
        (KAFKA | {"mode": "standalone"}, "mode standalone reads no Kafka: set mode: worker"),
        (
            {"mode": "worker", "config": {"kafka": {"bootstrap_servers": ["fd00::1:9092"]}}},
            "config.kafka.bootstrap_servers: fd00::1:9092 is no host:port",
        ),
        (
            {"mode": "worker", "config": {"kafka": {"bootstrap_servers": ["http://kafka:9092"]}}},
            "config.kafka.bootstrap_servers: http://kafka:9092 is no host:port",
        ),
        (SASL, "config.kafka.security.protocol SASL_SSL needs a password"),
        (SASL, "config.kafka.security.username is missing"),
        (
            {"config": {"alerts": {"alertmanager_url": ["http://one:9093", "two:9093"]}}},
            "alertmanager_url.1: Does not match pattern '^\\s*https?://",
        ),
        (
            {"config": {"judge": {"base_url": "http://judge/v1"}}},
            "config.judge.base_url needs config.judge.model",
        ),
        ({"config": {"alerts": {"webhook_url": "hooks/x"}}}, "webhook_url: Does not match pattern"),
        (
            {"config": {"judge": {"base_url": "http://j/v1/chat/completions", "model": "m"}}},
            "config.judge.base_url: a base URL ends before the name of the call",
        ),
        ({"alertRules": [{"nam": "x"}]}, "alertRules.0: name is required"),
        ({"alertRules": [{"name": "x", "treshold": 1}]}, "property treshold is not allowed"),
        (KAFKA | {"worker": {"replicas": 9}}, "9 workers cannot share 8 partitions"),
        (KAFKA | {"worker": {"replicas": 0}}, "Must be greater than or equal to 1"),
        (
            KAFKA | {"autoscaling": {"type": "keda", "maxReplicas": 20}},
            "20 workers cannot share 8 partitions",
        ),
        (
            KAFKA | {"autoscaling": {"type": "hpa", "minReplicas": 5, "maxReplicas": 4}},
            "autoscaling.minReplicas is above autoscaling.maxReplicas",
        ),
        ({"autoscaling": {"type": "hpa"}}, "autoscaling is for workers"),
        (KAFKA | {"autoscaling": {"type": "keda"}}, "needs autoscaling.keda.serverAddress"),
        ({"terminationGracePeriodSeconds": 14}, "14 is too short: the agent may take 10 s"),
        (
            {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
            "every count would come twice",
        ),
        ({"mode": "sidecar", "serviceMonitor": {"enabled": True}}, "has no Service to monitor"),
        ({"mode": "sidecar", "networkPolicy": {"enabled": True}}, "shut the application's own"),
        (KAFKA | {"ingress": {"enabled": True}}, "ingress needs one agent that knows all"),
        (
            {"podDisruptionBudget": {"enabled": True, "minAvailable": 1, "maxUnavailable": 1}},
            "minAvailable or maxUnavailable, not both",
        ),
        ({"hhem": {"enabled": True}}, "hhem.enabled needs hhem.volume"),
        (
            KAFKA | {"autoscaling": HPA | {"hpa": {"targetCPUUtilizationPercentage": 0}}},
            "needs something to scale by",
        ),
        (
            KAFKA | {"autoscaling": HPA, "resources": {"requests": None, "limits": None}},
            "resources.requests.cpu, which is not set",
        ),
        (
            {"podMonitor": {"enabled": True, "interval": "59s", "scrapeTimeout": "1m"}},
            "podMonitor.scrapeTimeout 1m is above its interval 59s",
        ),
        ({"ingress": {"enabled": True, "tlsSecret": "cert"}}, "tlsSecret needs ingress.host"),
        ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "the Pods are found by it"),
        ({"commonLabels": {"app.kubernetes.io/instance": "mine"}}, "the Pods are found by it"),
        (
            {"alertRules": [{"name": "One"}], "config": {"alerts": {"rules": "/rules.yaml"}}},
            "the same thing in two places",
        ),
        (
            {"secrets": {"httpTls": {"existingSecret": "cert", "certKey": ""}}},
            "httpTls needs certKey and keyKey",
        ),
        ({"config": {"http": {"metrics_port": 4318}}}, "are two ports"),
        ({"config": {"http": {"metrics_port": 0}}}, "none is 0"),
        ({"fullnameOverride": "Foo_Bar"}, "fullnameOverride: Does not match pattern"),
        ({"nameOverride": "n" * 51}, "nameOverride: String length must be less than or equal"),
        ({"extraEnv": [{"value": "x"}]}, "extraEnv.0: name is required"),
        ({"extraEnv": [{"name": "X", "value": 5}]}, "extraEnv.0.value: Invalid type"),
        ({"persistence": {"size": "2GB"}}, "persistence.size: Does not match pattern"),
        ({"resources": {"limits": {"memory": "768MB"}}}, "limits.memory: Does not match pattern"),
        ({"sidecar": {"emptyDir": {"sizeLimit": "1 Gi"}}}, "sizeLimit: Does not match pattern"),
        ({"config": {"state": {"path": "/data/s.sqlite"}}}, "on the read-only root"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: Object, words: str) -> None:
    assert words in refused(values)


def test_native_sidecars_need_a_kubernetes_that_has_them() -> None:
    reported = refused({"mode": "sidecar"}, "--kube-version", "1.28.3")
    assert "sidecar.type native needs Kubernetes 1.29" in reported
    assert render({"mode": "sidecar", "sidecar": {"type": "classic"}}, "--kube-version", "1.28.3")


def test_sasl_and_several_alertmanagers_are_taken() -> None:
    security = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "ragmeter"}
    servers = ["[fd00::1]:9092", "kafka-0.kafka:9092"]
    alerts = {"alertmanager_url": ["http://one:9093", "https://two/am"]}
    config = {"kafka": {"bootstrap_servers": servers, "security": security}, "alerts": alerts}
    password = {"kafkaPassword": {"existingSecret": "kafka"}}
    assert render({"mode": "worker", "config": config, "secrets": password})
    tokens = security | {"mechanism": "OAUTHBEARER"}
    config["kafka"] = {"bootstrap_servers": ["kafka:9092"], "security": tokens}
    assert render({"mode": "worker", "config": config})
