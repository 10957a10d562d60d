"""The command `ragmeter report`: summarise and compare scored files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ragmeter.cli.options import ConfigOption, exit_on_error, load_or_exit
from ragmeter.console.terminal import UsageError, exit_error, print_message

if TYPE_CHECKING:
    from ragmeter.offline.report.gate import GateOptions

# The statistic that a rule of a gate tests.
GateOn = Literal["bound", "mean"]

GateOption = Annotated[
    str | None,
    typer.Option(
        help="Exit with 1 unless the required thresholds hold: a profile (conservative, balanced,"
        " lenient) or a rules file.",
    ),
]
GateOnOption = Annotated[
    GateOn,
    typer.Option(
        "--on",
        help="bound: a threshold fails if even the better end of the interval misses it; mean: if"
        " the mean does.",
    ),
]
JunitOption = Annotated[
    Path | None, typer.Option(help="Write what the gate checked as JUnit XML into this file.")
]
MarkdownOption = Annotated[
    Path | None, typer.Option(help="Append what the gate checked as a Markdown table to this file.")
]


def gate_options(
    gate: str | None,
    on: GateOn,
    junit: Path | None,
    markdown: Path | None,
    read: Sequence[Path],
) -> GateOptions | None:
    """Return the gate that the options describe, None without `--gate`; `read` are input files."""
    from ragmeter.offline.report.gate import GateOptions, load_gate

    if gate is not None:
        with exit_on_error():
            options = GateOptions(load_gate(gate), on, junit, markdown)
            options.check_outputs([*read, Path(gate)])
        return options
    if junit is not None or markdown is not None:
        raise exit_error("--junit and --markdown write what --gate has checked", 2)
    return None


# Output format of `ragmeter report`.
ReportFormat = Literal["table", "json", "open-rag-eval"]


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="What `ragmeter score` wrote (JSON lines, Parquet, CSV) or a CSV of open-rag-eval,"
            " gzip too; - is stdin. The others are compared with the first.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(help="Write a page with box plots into this file.")
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(hidden=True),  # its error names --html; remove it one release later
    ] = None,
    form: Annotated[
        ReportFormat,
        typer.Option(
            "--format", "-f",
            help="table; json: every number of it; open-rag-eval: the CSV columns of that tool.",
        ),
    ] = "table",
    output: Annotated[
        Path, typer.Option( "--output", "-o", help="Where open-rag-eval's CSV goes; - is stdout.")
    ] = Path("-"),
    traces: Annotated[
        Path | None,
        typer.Option(
            help="The traces that were scored: shows queries and answers of the worst."
        ),
    ] = None,
    service: Annotated[
        str | None, typer.Option(help="Only traces of this service.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option( "--metric", "-m", help="Only this metric. May be repeated."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every metric; without it six of them, if there are any.")
    ] = False,
    by: Annotated[
        str, typer.Option(metavar="TAG", help="A row for each value of this tag, however small.")
    ] = "",
    pair_by: Annotated[
        str,
        typer.Option(
            help="What the same question is known by: trace_id, query (its text) or tag:NAME.",
        ),
    ] = "trace_id",
    worst: Annotated[
        int, typer.Option(min=0, max=100, help="Worst traces of each metric.")
    ] = 5,
    seed: Annotated[int, typer.Option(help="Of the random turns of the test.")] = 0,
    gate: GateOption = None,
    on: GateOnOption = "bound",
    junit: JunitOption = None,
    markdown: MarkdownOption = None,
    config: ConfigOption = None,
) -> None:  # fmt: skip
    """Summarise scored files, with intervals and box plots, and compare two or more."""
    from ragmeter.app.exports import render_report
    from ragmeter.offline.report.command import ReportOptions, convert_to_open_rag_eval, run_report

    if png is not None:
        raise exit_error("--png is gone: use --html, whose page holds the same pictures", 2)
    settings = load_or_exit(config)
    read = [*files, *filter(None, [traces, config])]
    wanted = ReportOptions(
        files, form, html, traces, service, metric or (), pair_by, worst, seed, every, by,
        [config] if config else (), gate_options(gate, on, junit, markdown, read),
    )  # fmt: skip
    with exit_on_error():
        if form == "open-rag-eval":
            convert_to_open_rag_eval(wanted, output, settings, print_message)
        elif output != Path("-"):
            raise UsageError("--output: for --format open-rag-eval; the table goes to stdout")
        elif not run_report(wanted, settings, print_message, render_report):
            raise typer.Exit(1)
