"""The commands `ragmeter score` and `ragmeter backtest`: files of traces, and of their scores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from ragmeter.cli import options
from ragmeter.console.streams import exit_error, print_message
from ragmeter.console.terminal import stderr

# The format of a file of scores.
ScoreFormat = Literal["jsonl", "csv", "parquet", "open-rag-eval"]


def score(
    file: Annotated[
        Path, typer.Argument(help="Traces: JSON lines or array, gzip too; - is stdin.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write; - is stdout.")
    ] = Path("-"),
    form: Annotated[
        ScoreFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="jsonl: one object a trace; csv: one column a metric and scorer; parquet: a row a"
            " result; open-rag-eval: the columns of that tool, with questions, passages and"
            " answers. By default as the output is named: .csv, .parquet, else jsonl.",
        ),
    ] = None,
    feedback: Annotated[
        Path | None, typer.Option(help="Labels of these traces: JSON lines or array, gzip too.")
    ] = None,
    judge_inputs: Annotated[
        Path | None,
        typer.Option(
            "--keep-judge-inputs",
            help="Write the traces, redacted, as the judge is shown them into this file.",
        ),
    ] = None,
    rejudge: Annotated[
        bool,
        typer.Option(
            "--rejudge",
            help="FILE is what --keep-judge-inputs wrote: judge exactly that again, as the settings"
            " say now, and score nothing else.",
        ),
    ] = False,
    config: options.ConfigOption = None,
) -> None:
    """Score each trace of a file offline: every metric, no sampling.

    Results that the judge or the model failed to give are unscored, each with its reason, and
    counted at the end, with what the judge was asked and what it cost. The exit status is 1 if one
    of the two gave no result at all.
    """
    from ragmeter.offline.score_file import score_file
    from ragmeter.scoring.slow_tiers import ConfiguredTiers

    settings = options.load_or_exit(config, {"hhem": {"path": None}} if rejudge else None)
    if rejudge and settings.judge.base_url is None:
        raise exit_error("--rejudge: no judge is configured (judge.base_url)", 2)
    options.warn_unused_settings(settings, "score", options.OFFLINE_UNUSED)
    if output.suffix == ".gz":
        raise exit_error(f"--output: {output}: scores are written uncompressed; gzip them then", 2)
    by_name = {".csv": "csv", ".parquet": "parquet"}.get(output.suffix, "jsonl")
    with options.exit_on_error():
        scorers = ConfiguredTiers(settings).scorers
        done = asyncio.run(
            score_file(
                path=file,
                output=output,
                form=form or by_name,
                settings=settings,
                say=print_message,
                tiers=scorers,
                feedback=feedback,
                judge_inputs=judge_inputs,
                rejudge=rejudge,
            )
        )
    stderr.print(
        f"{done.traces} traces scored, {done.bad} items unreadable, in {done.seconds:.1f} s"
    )
    for line in (*done.summary_lines(), *done.judging.lines()):
        print_message(line)
    if (done.bad and not done.traces) or done.failed_tiers:
        raise typer.Exit(1)


def backtest(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file that `ragmeter score` wrote: JSON lines, gzip too; - is stdin."
        ),
    ],
    config: options.ConfigOption = None,
    form: Annotated[
        options.TableFormat,
        typer.Option(
            "--format", "-f", help="table: what would have fired; json: that and every estimate."
        ),
    ] = "table",
) -> None:
    """Replay scored traces through windows and rules: which alerts would have fired, and when."""
    from ragmeter.alerts.rule_sets import load_configured_rules
    from ragmeter.app.parts import PARTS
    from ragmeter.offline.backtest_report import run_backtest

    settings = options.load_or_exit(config)
    with options.exit_on_error(2):
        all_rules = load_configured_rules(settings)
    with options.exit_on_error():
        read = run_backtest(
            path=file,
            settings=settings,
            rules=all_rules,
            form=form,
            say=print_message,
            parts=PARTS,
        )
    if not read:
        raise exit_error(f"{file}: no scored trace could be read", 1)
