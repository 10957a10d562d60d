"""What the Helm chart holds that has its source elsewhere; `python -m deploy.chart` writes it:

- values.schema.json: the chart's own values as values.yaml has them, with the bounds of `BOUNDS`;
  the agent's settings (`config`) as `ragmeter.config.settings` has them, but for the secret ones,
  which are named by Secrets and never given.

With `--check` nothing is written; exit 1 names what is not in step.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ragmeter.alerts.rules import AlertRule
from ragmeter.app.parts import AgentSettings

__all__ = ["CHART", "Value", "generated", "main", "schema", "values"]

ROOT = Path(__file__).parent.parent
CHART = ROOT / "helm" / "ragmeter"

POSITIVE = {"type": "integer", "minimum": 1}
COUNT = {"type": "integer", "minimum": 0}
NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}}
OBJECTS = {"type": "array", "items": {"type": "object"}}
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
FREE = {"type": "object"}  # Kubernetes' own types: its API server checks them
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
# 50 as in _helpers.tpl, where what is longer would be cut
NAME = {"type": "string", "maxLength": 50, "pattern": "^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$"}
VARIABLE = {  # of a container: the API server says only that it cannot read the Pod
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "minLength": 1}, "value": {"type": "string"}},
}
# The values that name a Secret for a secret setting, by its section and key; others have no file.
SECRETS = {
    "HttpSettings.token": "secrets.httpToken",
    "HttpSettings.send_token": "secrets.httpSendToken",
    "HttpSettings.scrape_token": "secrets.httpScrapeToken",
    "JudgeSettings.api_key": "secrets.judgeApiKey",
    "SecondJudgeSettings.api_key": "secrets.secondJudgeApiKey",
    "KafkaOAuth.client_secret": "secrets.kafkaClientSecret",
    "KafkaSecurity.password": "secrets.kafkaPassword",
    "PrivacySettings.hash_key": "secrets.hashKey",
    "ResultsExportSettings.headers": "secrets.resultsHeaders",
}
URL = "^\\s*https?://[^/\\s]"
_URL_NAMES = ("url", "endpoint")
RULE = {  # laid over a default one, so that only the name must be there; the agent checks the rest
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": dict.fromkeys(AlertRule.model_json_schema()["properties"], True),
}
QUANTITY = {  # as Kubernetes writes it: `GB` and `MB` are none
    "type": ["string", "number"],
    "minimum": 0,
    "pattern": "^[0-9]+([.][0-9]+)?([munkMGTPE]|[KMGTPE]i|[eE][0-9]+)?$",
}
QUANTITIES = {"type": "object", "additionalProperties": QUANTITY}
AMOUNT = {"type": ["integer", "string", "null"], "minimum": 0, "pattern": "^[0-9]+%$"}

BOUNDS: dict[str, dict[str, Any]] = {
    "mode": {"enum": ["standalone", "worker", "sidecar"]},
    "nameOverride": NAME,
    "fullnameOverride": NAME,
    "commonLabels": STRINGS,
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.repository": {"type": "string", "minLength": 1},
    "image.pullSecrets": NAMES,
    "hhem.volume": FREE,
    "standalone.annotations": STRINGS,
    "persistence.accessModes": {
        "type": "array",
        "minItems": 1,
        "items": {"enum": ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]},
    },
    "persistence.size": QUANTITY,
    "persistence.annotations": STRINGS,
    "persistence.whenDeleted": {"enum": ["Retain", "Delete"]},
    "worker.replicas": POSITIVE,  # with none there would be no gauges, and no alerts
    "worker.strategy": FREE,
    "worker.minReadySeconds": COUNT,
    "worker.annotations": STRINGS,
    "alertRules": {"type": "array", "items": RULE},
    "autoscaling.type": {"enum": ["none", "hpa", "keda"]},
    "autoscaling.minReplicas": POSITIVE,
    "autoscaling.maxReplicas": POSITIVE,
    "autoscaling.hpa.targetCPUUtilizationPercentage": COUNT,
    "autoscaling.hpa.behavior": FREE,
    "autoscaling.keda.lagSeconds": POSITIVE,
    "autoscaling.keda.pollingInterval": POSITIVE,
    "autoscaling.keda.cooldownPeriod": COUNT,
    "autoscaling.keda.authenticationRef": STRINGS,
    "sidecar.type": {"enum": ["native", "classic"]},
    "sidecar.preStopSeconds": COUNT,
    "sidecar.emptyDir": {"type": "object", "properties": {"sizeLimit": QUANTITY}},
    "resources": {
        "type": "object",
        "properties": {"requests": QUANTITIES, "limits": QUANTITIES},
    },
    "probes.startup": FREE,
    "probes.liveness": FREE,
    "probes.readiness": FREE,
    "terminationGracePeriodSeconds": {"type": ["integer", "null"], "minimum": 1},
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "service.ipFamilyPolicy": {
        "enum": ["SingleStack", "PreferDualStack", "RequireDualStack", None]
    },
    "service.ipFamilies": {
        "type": "array",
        "uniqueItems": True,
        "maxItems": 2,
        "items": {"enum": ["IPv4", "IPv6"]},
    },
    "service.annotations": STRINGS,
    "ingress.annotations": STRINGS,
    "ingress.path": {"type": "string", "pattern": "^/"},
    "serviceAccount.annotations": STRINGS,
    "podSecurityContext": FREE,
    "securityContext": FREE,
    "podDisruptionBudget.minAvailable": AMOUNT,
    "podDisruptionBudget.maxUnavailable": AMOUNT,
    "serviceMonitor.labels": STRINGS,
    "serviceMonitor.interval": DURATION,
    "serviceMonitor.scrapeTimeout": DURATION,
    "serviceMonitor.authorization": FREE,
    "serviceMonitor.tlsConfig": FREE,
    "podMonitor.authorization": FREE,
    "podMonitor.tlsConfig": FREE,
    "podMonitor.labels": STRINGS,
    "podMonitor.interval": DURATION,
    "podMonitor.scrapeTimeout": DURATION,
    "prometheusRule.labels": STRINGS,
    "dashboards.labels": STRINGS,
    "dashboards.annotations": STRINGS,
    "extraEnv": {"type": "array", "items": VARIABLE},
    "extraArgs": {"type": "array", "items": {"type": "string"}},
    "podAnnotations": STRINGS,
    "podLabels": STRINGS,
    "nodeSelector": STRINGS,
    "affinity": FREE,
}
GIVEN_BY_HELM = {
    "global": {"type": "object", "description": "given by Helm to every dependency; not read"},
    "enabled": {
        "type": "boolean",
        "description": "for the `condition` of a chart that depends on this one; not read",
    },
}


@dataclass(frozen=True, slots=True)
class Value:
    """A key of values.yaml that its comment describes."""

    path: str
    description: str


def values(text: str) -> Iterator[Value]:
    """The described keys, in the order of the file."""
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.split("\n"):
        words = line.strip()
        if words.startswith("# -- "):
            comment = [words[5:]]
        elif words.startswith("# ") and comment:
            comment.append(words[2:])
        elif found := re.match(r"( *)([A-Za-z]\w*):", line):
            indent = len(found[1])
            above = [(depth, key) for depth, key in above if depth < indent]
            above.append((indent, found[2]))
            if comment:
                yield Value(".".join(key for _, key in above), " ".join(comment))
            comment = []
        else:
            comment = []


def schema(text: str) -> dict[str, Any]:
    """The JSON Schema of the values: nothing is allowed that is not named here."""
    described = {one.path: one.description for one in values(text)}
    settings = AgentSettings.model_json_schema()
    root = _shape("", yaml.safe_load(text), described)
    root["properties"] |= GIVEN_BY_HELM
    # the section of the workers, where the installed agent has none
    sections = {"kafka": {"type": "object"}} | _public(settings)["properties"]
    root["properties"]["config"] = {
        "description": described["config"],
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart ragmeter",
        "description": "Written by `python -m deploy.chart`; do not edit.",
        **root,
        "$defs": {name: _public(one, name) for name, one in settings["$defs"].items()},
    }


def _shape(path: str, default: Any, described: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if path in described:
        found["description"] = described[path]
    if path in BOUNDS:
        return found | BOUNDS[path]
    if isinstance(default, dict):
        inner = {
            key: _shape(f"{path}.{key}" if path else key, value, described)
            for key, value in default.items()
        }
        return found | {"type": "object", "additionalProperties": False, "properties": inner}
    if isinstance(default, list):
        return found | OBJECTS
    kinds = {bool: "boolean", str: "string"}
    return found | {"type": kinds[type(default)]}


def _public(node: Any, section: str = "") -> Any:
    """Without what is of no use to who writes values, and without types of secret settings.

    A secret has one value that is allowed, since Helm quotes it where it refuses another: it says
    where the Secret is named.
    """
    if isinstance(node, list):
        return [_public(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":
            shown = {
                name: _named(f"{section}.{name}") if _secret(one) else _public(one)
                for name, one in value.items()
            }
            kept[key] = {
                name: _of_url(one) if name.endswith(_URL_NAMES) else one
                for name, one in shown.items()
            }
        elif key not in ("default", "title", "format"):
            kept[key] = _public(value)
    return kept


def _named(secret: str) -> dict[str, Any]:
    """The schema of a secret setting, which refuses it and names the cure.

    Helm's message says what the value must be, which is the cure, and `not` refuses even that.
    """
    place = SECRETS.get(secret)
    cure = "no value of the chart: a variable from a Secret in extraEnv"
    if place is not None:
        cure = f"no value of the chart: name a Secret in {place}.existingSecret"
    return {"const": cure, "not": {"const": cure}}


def _of_url(node: Any) -> Any:
    """The schema of a URL, or of several: each text begins as one."""
    if isinstance(node, list):
        return [_of_url(one) for one in node]
    if not isinstance(node, dict):
        return node
    found = {key: _of_url(value) for key, value in node.items()}
    return found | {"pattern": URL} if node.get("type") == "string" else found


def _secret(setting: Any) -> bool:
    return any(one.get("format") == "password" for one in [setting, *setting.get("anyOf", [])])


def generated() -> dict[Path, str]:
    """Every file that is made here, with what must stand in it."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    return {
        CHART / "values.schema.json": json.dumps(schema(text), indent=2, ensure_ascii=False) + "\n"
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    stale = [
        path
        for path, text in generated().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        sys.stdout.write(f"{path.relative_to(ROOT)}{' is not in step' if check else ''}\n")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated()[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
