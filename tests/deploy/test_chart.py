"""What is generated into the chart is in step with its sources; no Helm is needed for that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.app.parts import AgentSettings

from deploy import chart
from tests.tables import each_row

VALUES = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))


def leaves(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        path = f"{above}{key}"
        if isinstance(value, dict) and value and path not in chart.BOUNDS:
            yield from leaves(value, f"{path}.")
        else:
            yield path


def test_generated_files_are_in_step() -> None:
    stale = [
        str(path)
        for path, text in chart.generated().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python -m deploy.chart`"


def test_every_value_is_described() -> None:
    described = [one.path for one in chart.values(VALUES)]
    assert described == list(dict.fromkeys(described))
    assert set(leaves(yaml.safe_load(VALUES))) == set(described)


def test_every_bound_is_of_a_value() -> None:
    assert set(chart.BOUNDS) <= {one.path for one in chart.values(VALUES)}


@each_row("path", ["", "image", "secrets.judgeApiKey", "config", "autoscaling.keda"])
def test_unknown_keys_are_refused(path: str) -> None:
    node = SCHEMA
    for key in filter(None, path.split(".")):
        node = node["properties"][key]
    assert node["additionalProperties"] is False


def secret_settings(model: Any, above: str = "") -> Iterator[str]:
    schema = model.model_json_schema()
    for name, node in [("", schema), *schema["$defs"].items()]:
        for key, one in node.get("properties", {}).items():
            if "password" in json.dumps([one.get("format"), one.get("anyOf")]):
                yield f"{name}.{key}"


def test_no_secret_can_be_given_as_a_value() -> None:
    secrets = set(secret_settings(AgentSettings))
    assert {
        "JudgeSettings.api_key",
        "OtlpSettings.session_salt",
        "PrivacySettings.hash_key",
    } <= secrets
    named = SCHEMA["properties"]["secrets"]["properties"]
    for name in secrets:
        section, _, key = name.rpartition(".")
        refusal = SCHEMA["$defs"][section]["properties"][key]
        assert refusal["not"] == {"const": refusal["const"]}  # not even the words of the refusal
        place = re.search(r"secrets\.(\w+)", refusal["const"])
        if place is None:
            assert refusal["const"].endswith("in extraEnv")
        else:  # it is a value of the chart
            assert "existingSecret" in named[place[1]]["properties"]
    assert '"format": "password"' not in json.dumps(SCHEMA)


def test_settings_have_all_their_other_keys() -> None:
    schema = AgentSettings.model_json_schema()
    assert set(schema["properties"]) <= set(SCHEMA["properties"]["config"]["properties"])
    for name, node in schema["$defs"].items():
        assert set(node.get("properties", {})) == set(SCHEMA["$defs"][name].get("properties", {}))


def test_check_names_what_is_not_in_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "helm" / "ragmeter"
    copy.mkdir(parents=True)
    for name in ("values.yaml", "values.schema.json"):
        (copy / name).write_bytes((chart.CHART / name).read_bytes())
    monkeypatch.setattr(chart, "CHART", copy)
    monkeypatch.setattr(chart, "ROOT", tmp_path)
    assert chart.main(["--check"]) == 0
    text = VALUES.replace("# -- how ragmeter runs:", "# -- how it runs:")
    (copy / "values.yaml").write_text(text, encoding="utf-8")
    assert chart.main(["--check"]) == 1
    assert capsys.readouterr().out == "helm/ragmeter/values.schema.json is not in step\n"
    assert chart.main([]) == 0
    assert chart.main(["--check"]) == 0


def test_version_is_the_projects_own() -> None:
    text = (chart.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{about["appVersion"]}"' in text
