"""Fill in the annotations that promtool's unit tests of the rules expect.

Which alert fires when, and with which labels, is written by hand in `*.test.yaml`. The
words are long, and promtool compares them as well: after a change of the words,
`python -m tests.exporters.rules.annotations` takes those that promtool found, to be read in the
diff. Nothing else in the files changes.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from ragmeter.core.durations import parse_duration

from tests.real import require
from tests.waiting import PATIENCE

__all__ = ["FILES", "HEAD", "TESTS", "filled", "promtool"]

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "deploy" / "prometheus" / "tests"
# of the agent's own rules, and of those that parts bring
FILES = sorted([*TESTS.glob("*.test.yaml"), *ROOT.glob("tests/parts/*/*.test.yaml")])
HEAD = """\
# Unit tests of the chart's ragmeter.rules.yaml: `promtool test rules FILE`. exp_annotations by
# `python -m tests.exporters.rules.annotations`; the rest is written by hand.
"""

_CASE = re.compile(
    r"    name: (?P<group>[^\n]*),\n"
    r"    alertname: (?P<name>\w+), time: (?P<time>\w+), \n(?P<body>.*?)(?=\n    \S|\Z)",
    re.S,
)
_FOUND = re.compile(r"Labels:\{(.*?)\}\n\s+Annotations:\{(.*?)\},?\n")
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def promtool(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require("promtool"), "test", "rules", file.name],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(value) for name, value in _PAIR.findall(text)}


def filled(document: dict[str, Any], reported: str) -> dict[str, Any]:
    """The tests with the annotations of what promtool `said` that it got, where its labels are
    those that are expected."""
    tests = {
        (group.get("name"), test["alertname"], parse_duration(test["eval_time"])): test
        for group in document["tests"]
        for test in group.get("alert_rule_test", [])
    }
    for case in _CASE.finditer(reported):
        got = [
            (_pairs(labels), _pairs(words))
            for labels, words in _FOUND.findall(case["body"].partition("got:")[2])
        ]
        for expected in tests[case["group"], case["name"], parse_duration(case["time"])][
            "exp_alerts"
        ]:
            labels = {"alertname": case["name"], **expected["exp_labels"]}
            for words in [words for found, words in got if found == labels]:
                expected["exp_annotations"] = words
    return document


def main() -> None:
    for file in FILES:
        done = promtool(file)
        document = filled(yaml.safe_load(file.read_text("utf-8")), done.stdout + done.stderr)
        text = yaml.dump(document, Dumper=_Plain, sort_keys=False, width=1_000, allow_unicode=True)
        file.write_text(HEAD + text, "utf-8")
        done = promtool(file)
        print(file.name, done.stdout.strip(), done.stderr.strip()[-2000:])


if __name__ == "__main__":
    main()
