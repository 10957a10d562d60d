"""The commands `ragmeter model`: check and use a local model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import from_json
from rich.table import Table

from ragmeter.cli.options import exit_on_error
from ragmeter.console.streams import exit_error, print_message
from ragmeter.console.terminal import print_tables
from ragmeter.core.errors import UsageError
from ragmeter.ingest.files import MAX_ARRAY, input_name, iterate_lines, open_input
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.scorers.hhem.model import MANIFEST_NAME as HHEM_MANIFEST
from ragmeter.scorers.hhem.model import WEIGHTS_NAME, ModelError

model_app = typer.Typer(help="Check and use a local model.", no_args_is_help=True)

ModelFolder = Annotated[Path, typer.Argument(help="Folder of the model.")]


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _read_pairs(lines: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield the number of each line with its pair, or with what is wrong."""
    for line, number in lines:
        try:
            pair = json.loads(line, parse_constant=_reject_constant)
        except (ValueError, RecursionError) as error:
            yield number, f"not JSON: {error}"
            continue
        if not isinstance(pair, dict):
            yield number, "not a JSON object"
        elif missing := [k for k in ("premise", "hypothesis") if not isinstance(pair.get(k), str)]:
            yield number, f"{' and '.join(missing)} must be text"
        else:
            yield number, pair


@model_app.command("score")
def score_pairs(
    folder: ModelFolder,
    pairs: Annotated[
        Path, typer.Option(help="JSON lines with premise and hypothesis; - is stdin.")
    ],
    int8: Annotated[bool, typer.Option("--int8", help="Use the quantised graph.")] = False,
) -> None:
    """Score pairs: print each line with `score` (1: supported) and `logits` added.

    A line that is not a pair is reported on stderr; the others are scored and the exit status is 1.
    """
    from ragmeter.scorers.hhem.model import HhemModel, consistency_probability

    bad = 0
    with exit_on_error(model=""):
        model = HhemModel(folder, int8)
        with open_input(pairs) as file:
            for number, pair in _read_pairs(iterate_lines(file, input_name(pairs), MAX_ARRAY)):
                if isinstance(pair, str):
                    bad += 1
                    print_message(f"{pairs}, line {number}: {pair}")
                    continue
                logits = model.logits(model.encode(pair["premise"], pair["hypothesis"]))
                typer.echo(
                    json.dumps({**pair, "score": consistency_probability(logits), "logits": logits})
                )
    if bad:
        raise typer.Exit(1)


@model_app.command("check")
def check_model(
    folder: Annotated[Path, typer.Argument(help="Folder of the model; mini is the embedded one.")],
    labels: Annotated[
        Path,
        typer.Option(
            help="JSON lines of traces with what people say: `grounded` or `relevant`, true or"
            " false."
        ),
    ],
) -> None:
    """Say how well a model, and the built-in score, agree with people."""
    from ragmeter.scorers.mini.model import MANIFEST_NAME

    names = (HHEM_MANIFEST, MANIFEST_NAME, WEIGHTS_NAME)
    if folder.is_dir() and not any((folder / name).exists() for name in names):
        raise exit_error(f"{folder} holds no model: neither {HHEM_MANIFEST} nor {MANIFEST_NAME}")
    with exit_on_error(model=""):
        print_tables([_compare_with_labels(folder, labels)])


def _compare_with_labels(folder: Path, labels: Path) -> Table:
    from ragmeter.app.api import score
    from ragmeter.app.settings import load_settings
    from ragmeter.core.score import BUILTIN_SCORER
    from ragmeter.offline.report.tables import agreement_table
    from ragmeter.windows.people_agreement import (
        LabelledScores,
        compare_with_people,
        scorer_values,
    )

    overrides: dict[str, Any] = {"models": {"cpu_share": 1}}
    if (folder / HHEM_MANIFEST).exists():
        overrides["hhem"] = {"path": str(folder)}
    elif str(folder) != "mini":
        overrides["models"]["path"] = str(folder)
    settings = load_settings(environ={}, overrides=overrides)  # no judge of the environment
    traces = []
    people = []
    limit = settings.limits.trace_bytes
    with open_input(labels) as file:
        for line, number in iterate_lines(file, input_name(labels), limit):
            with suppress(ValueError):  # `decode_trace` says why it is no JSON
                row = from_json(line)
                row = row if isinstance(row, dict) else {}
                said = {k: row[k] for k in ("grounded", "relevant") if isinstance(row.get(k), bool)}
                if not said:
                    continue
                row = {"service": "labels", "timestamp": 0, "trace_id": f"line {number}", **row}
                line = json.dumps(row).encode()
            item = decode_trace(line, limit)
            if isinstance(item, DecodeFailure):
                raise UsageError(f"{labels}, line {number}: {item.describe()}")
            traces.append(item.trace)
            people.append(said)
    if not people:
        raise UsageError(f"{labels}: no trace has `grounded` or `relevant`, true or false")
    rows = compare_with_people(
        LabelledScores(said, scorer_values(one.to_dict()["results"]))
        for one, said in zip(score(traces, settings), people, strict=True)
    )
    if all(row.scorer == BUILTIN_SCORER for row in rows):
        raise ModelError(f"{folder} scored none of the {len(people)} labelled traces")
    return agreement_table(rows, f"{len(people)} labelled traces")
