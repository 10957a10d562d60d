"""What the documents show in blocks loads: settings, rules, JSON, Python, commands."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.alerts.rules import default_documents, parse_rules
from ragmeter.app.parts import AgentSettings
from ragmeter.app.settings import load_settings

from tests.command_lines import commands_in, unknown

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "helm/*/*.md", "deploy/**/*.md")
    for page in sorted(ROOT.glob(pattern))
]
BLOCKS = [
    pytest.param(language, text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (language, text) in enumerate(
        re.findall(r"^[ ]*```(\w+)\n(.*?)^[ ]*```", page.read_text("utf-8"), re.M | re.S)
    )
]

# First keys of what others read: Prometheus, a collector, Helm.
OTHERS = {"scrape_configs", "rule_files", "route", "exporters", "secrets", "dependencies"}


def with_files(tree: Any, folder: Path) -> Any:
    """The settings with files of the reader's in place of those that are named."""
    if isinstance(tree, dict):
        return {
            key: file_of(key, folder)
            if key.endswith("_file") or (key in ("file", "sqlite") and isinstance(value, str))
            else with_files(value, folder)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [with_files(one, folder) for one in tree]
    return tree


def file_of(key: str, folder: Path) -> str:
    file = folder / key
    file.write_text("name: a-value-that-is-long-enough-for-a-key\n")
    return str(file)


@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_a_block_loads(language: str, text: str, tmp_path: Path) -> None:
    match language:
        case "yaml" if "{{" not in text:  # no template
            load_yaml(text, tmp_path)
        case "json":
            for line in [text] if text.strip().endswith("}") else text.splitlines():
                json.loads(line)
        case "python":
            ast.parse(text)
        case "sh" | "console":
            for words in commands_in(text):
                assert unknown(words) == [], words


def load_yaml(text: str, folder: Path) -> None:
    tree = yaml.safe_load(text)
    if isinstance(tree, dict) and set(tree) <= set(AgentSettings.model_fields):
        load_settings(environ={}, overrides=with_files(tree, folder))
    elif isinstance(tree, dict) and "rules" in tree:
        parse_rules([*default_documents(), tree])
    elif isinstance(tree, dict) and set(tree) & OTHERS:
        pass  # of another program, or the chart's
    else:
        commands = list(commands_in(re.sub(r"(?m)^[ -]*(run: )?", "", text)))
        assert commands, "neither settings, nor rules, nor steps of a pipeline"
        assert [unknown(words) for words in commands if unknown(words)] == []
