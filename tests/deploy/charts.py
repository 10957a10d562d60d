"""Rendering charts with the real Helm, and finding one's way in what comes out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.chart import CHART
from tests.deploy.tools import CRDS, ROOT, helm_program, python_of_tools

__all__ = [
    "LOADER",
    "NEWEST",
    "VALUE_FILES",
    "Object",
    "container",
    "helm",
    "one",
    "pod",
    "refused",
    "render",
    "wrong",
]

Object = dict[str, Any]

VALUE_FILES = sorted((CHART / "ci").glob("*-values.yaml"))
SECONDS = 300
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast
NEWEST = "1.37.0"  # of Kubernetes; a Helm that `go install` made would take itself to be of 1.20


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm_program(), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )


ACCEPTED = {"accept": ["open", "plain"]}


def _accepting(values: Object) -> Object:
    """These values, and that nobody is asked for a token: unless they speak of it themselves."""
    config = values.get("config", {})
    return {**values, "config": {**config, "http": {**ACCEPTED, **config.get("http", {})}}}


def _template(values: Any, chart: Path, more: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`values` is a file, or what a file would hold."""
    if isinstance(values, dict) and (chart / "values.schema.json").exists():
        values = _accepting(values)
    given = ["--values", str(values)] if isinstance(values, Path) else ["--values", "-"]
    text = None if isinstance(values, Path) else yaml.safe_dump(values)
    version = ["--kube-version", NEWEST]  # of two, the last one counts
    command = [helm_program(), "template", "demo", str(chart), "--namespace", "rag", *version]
    return subprocess.run(
        [*command, *given, *more],
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def render(values: Any, *more: str, chart: Path = CHART) -> list[Object]:
    done = _template(values, chart, more)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.load_all(done.stdout, LOADER) if item]


def refused(values: Any, *more: str) -> str:
    """What Helm says about values that it must not take."""
    done = _template(values, CHART, more)
    assert done.returncode, "was rendered"
    return done.stderr


def one(objects: Iterable[Object], kind: str) -> Object:
    (found,) = [item for item in objects if item["kind"] == kind]
    return found


def pod(objects: Iterable[Object]) -> Object:
    """The specification of the Pods of the only StatefulSet or Deployment."""
    workload = [item for item in objects if item["kind"] in ("StatefulSet", "Deployment")]
    assert len(workload) == 1
    found: Object = workload[0]["spec"]["template"]["spec"]
    return found


def container(objects: Iterable[Object]) -> Object:
    """The agent's, wherever it stands."""
    spec = pod(objects)
    every = [*spec["containers"], *spec.get("initContainers", [])]
    (found,) = [item for item in every if item["name"] == "ragmeter"]
    return dict(found)


def wrong(objects: list[Object], version: str) -> list[str]:
    """What Kubernetes of this version, or a custom resource's schema, does not take."""
    done = subprocess.run(
        [python_of_tools(), Path(__file__).parent / "validate_objects.py", version, CRDS],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    lines: list[str] = json.loads(done.stdout)
    return lines
