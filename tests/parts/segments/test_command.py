"""`ragmeter segments`: files of scores, and a running agent over its port."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.cli.main import app
from ragmeter.offline.whole_file import fill_windows
from ragmeter.parts.segments.terminal_table import build_segments_table
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.exporters.broken_down import fallen
from tests.exporters.server import serving
from tests.scored import line_dict, result

DAY = 86_400


def scores(path: Path, number: int, fall: float = 0.0, kinds: str = "ab") -> Path:
    """Traces of a year; of kind b so much less is answered."""
    rng = random.Random(number)
    with path.open("w") as file:
        for n in range(number):
            kind = kinds[n % len(kinds)]
            good = rng.random() < (0.9 - fall * (kind == "b"))
            one = line_dict(
                n,
                result("answered", float(good)),
                result("error", 0.0),
                timestamp=1.7e9 + n * 365 * DAY / number,
                tags={"kind": kind, "lang": "en"},
            )
            file.write(json.dumps(one) + "\n")
    return path


def ragmeter(*arguments: str | Path, tags: str = "") -> Result:
    return CliRunner(env={"RAGMETER_SEGMENTS": tags}).invoke(
        app, ["segments", *map(str, arguments)]
    )


def document(done: Result) -> Any:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_two_files_and_the_segment_between_them(tmp_path: Path) -> None:
    before, now = scores(tmp_path / "a", 1000), scores(tmp_path / "b", 600, fall=0.4)
    done = ragmeter(before, now, tags="kind")
    assert done.exit_code == 0
    assert "bot: the last file against the first file" in done.stdout
    line = next(line for line in done.stdout.splitlines() if "kind=b" in line)
    assert "moved, unlike the rest (q < 0.0001)" in line
    assert "error" not in done.stdout, "of what has not moved nothing is said"
    assert f"{now}: 600 traces, 0 lines unreadable" in " ".join(done.stderr.split())
    every = ragmeter(before, now, "--all", tags="kind")
    assert "error (builtin)" in every.stdout


def test_one_file_is_compared_within(tmp_path: Path) -> None:
    found = document(ragmeter(scores(tmp_path / "a", 600, 0.4), "--json", tags="kind"))
    (service,) = found["services"]
    assert service["past"] is None
    (answered,) = [one for one in service["series"] if one["metric"] == "answered"]
    assert {row["segment"]: row["unlike_the_rest"] for row in answered["tags"][0]["segments"]} == {
        "kind=a": True,
        "kind=b": True,
    }


def test_values_beyond_the_limit_are_one_segment(tmp_path: Path) -> None:
    path = scores(tmp_path / "a", 900, kinds="abcdefghi")
    settings = load_settings(
        None, overrides={"segments": ["kind"], "limits": {"segment_values": 3}}
    )
    windows = fill_windows(path, settings, lambda _: None)
    assert windows is not None
    assert windows.segments("bot") == ["kind=__other__", "kind=a", "kind=b", "kind=c"]
    assert windows.count_traces("bot", "kind=__other__", "24h") == 600, "of a whole year"


def test_a_running_agent_is_asked(tmp_path: Path) -> None:
    with serving(fallen()) as port:
        url = f"http://127.0.0.1:{port}"
        done = ragmeter("--url", url, "--service", "bot", "--window", "1h")
        assert done.exit_code == 0
        assert "bot: last 1h against the rest of 24h" in done.stdout
        assert "moved, unlike the rest" in done.stdout
        found = document(ragmeter("--url", url, "--json", "--metric", "answered"))
        assert [one["metric"] for one in found["services"][0]["series"]] == ["answered"]
        wrong = ragmeter("--url", url, "--window", "2h")
        assert wrong.exit_code == 1
        assert "one of 5m, 1h, 24h is needed" in " ".join(wrong.stderr.split())
    gone = ragmeter("--url", url)
    assert gone.exit_code == 1
    assert "is `ragmeter run` up?" in " ".join(gone.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "tags", "status", "why"),
    [
        (["FILE", "--url", "http://x"], "kind", 2, "--url and --window apply to a running agent"),
        (["FILE", "FILE", "FILE"], "kind", 2, "one file, or two"),
        (["FILE", "--metric", "beauty"], "kind", 2, "metric 'beauty' is not known"),
        (["FILE", "--against", "before"], "kind", 2, "no traffic before"),
        (["FILE"], "", 1, "there are no segments; set `segments: [model]`"),
        (["FILE"], "kimd", 1, "no trace has kimd"),
        (["FILE"], "kind,kimd", 0, "no trace has kimd"),
        (["FILE", "--service", "x"], "kind", 1, "nothing is known of 'x'"),
        (["NOTHING"], "kind", 1, "NOTHING: No such file or directory"),
        (["EMPTY"], "kind", 1, "no scored trace could be read"),
    ],
)
def test_mistakes_are_said(
    tmp_path: Path, arguments: list[str], tags: str, status: int, why: str
) -> None:
    scores(tmp_path / "FILE", 60)
    (tmp_path / "EMPTY").write_text("not json\n")
    paths = (str(tmp_path / a) if a.isupper() else a for a in arguments)
    done = ragmeter(*paths, tags=tags)
    assert done.exit_code == status
    assert why in " ".join(done.stderr.split())
    assert status == 0 or not done.stdout, "no heading above what is not there"


def test_text_of_traces_is_no_markup_and_no_control() -> None:
    nasty = "[red]x[/red]\x1b[2J"
    row = {
        "segment": f"kind={nasty}",
        "finding": "moved",
        "moved": True,
        "unlike_the_rest": False,
        "new": False,
        "gone": False,
        "too_few": False,
        "told": True,
        "share": 1.0,
        "share_before": 1.0,
        "now": {"samples": 3, "effective_samples": 3.0},
        "before": None,
        "change": {"value": 1.0, "lower": 0.0, "upper": 2.0, "p": 0.0, "q": 0.0},
        "from_rest": None,
        "contribution": None,
    }
    series = {"metric": "answered", "scorer": nasty, "whole": {**row, "segment": ""}}
    tag = {"tag": "kind", "unattributed": 0.0, "segments": [row]}
    table = build_segments_table(
        {
            "service": nasty,
            "past": "x",
            "fdr": 0.05,
            "comparisons": 1,
            "findings": 1,
            "series": [{**series, "tags": [tag]}],
        },
        "1h",
        False,
    )
    assert table is not None
    out = Console(width=200, record=True, file=io.StringIO())
    out.print(table)
    text = out.export_text()
    assert "[red]x[/red]" in text
    assert "\x1b" not in text
