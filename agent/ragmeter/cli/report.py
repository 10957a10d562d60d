"""The commands `ragmeter report` and `ragmeter segments`: compare scored files and segments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ragmeter.cli import options
from ragmeter.config.settings import Settings
from ragmeter.console.streams import exit_error, print_message
from ragmeter.core.errors import UsageError
from ragmeter.parts.views import ComparedWith

if TYPE_CHECKING:
    from ragmeter.offline.report.gate import GateOptions

GateOption = Annotated[
    str | None,
    typer.Option(
        help="Exit with 1 unless the required thresholds hold: a profile (sensitive, balanced,"
        " quiet) or a rules file."
    ),
]
JunitOption = Annotated[
    Path | None, typer.Option(help="Write what the gate checked as JUnit XML into this file.")
]


def gate_options(gate: str | None, junit: Path | None, read: Sequence[Path]) -> GateOptions | None:
    """Return the gate that the options describe, None without `--gate`; `read` are input files."""
    from ragmeter.offline.report.gate import GateOptions, load_gate

    if gate is not None:
        with options.exit_on_error():
            checked = GateOptions(load_gate(gate), junit)
            checked.check_outputs([*read, Path(gate)])
        return checked
    if junit is not None:
        raise exit_error("--junit writes what --gate has checked", 2)
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
    form: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            "-f",
            help="table; json: every number of it; open-rag-eval: the CSV columns of that tool.",
        ),
    ] = "table",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where open-rag-eval's CSV goes; - is stdout.")
    ] = Path("-"),
    traces: Annotated[
        Path | None,
        typer.Option(help="The traces that were scored: shows queries and answers of the worst."),
    ] = None,
    service: Annotated[str | None, typer.Option(help="Only traces of this service.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="Only this metric. May be repeated."),
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
    gate: GateOption = None,
    junit: JunitOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Summarise scored files, with intervals and box plots, and compare two or more."""
    from ragmeter.app.exports import render_report
    from ragmeter.app.parts import PARTS
    from ragmeter.offline.report.command import ReportOptions, convert_to_open_rag_eval, run_report

    settings = options.load_or_exit(config)
    read = [*files, *filter(None, [traces, config])]
    wanted = ReportOptions(
        files=files,
        form=form,
        html=html,
        traces=traces,
        service=service,
        metrics=metric or (),
        pair_by=pair_by,
        every=every,
        by=by,
        apart=[config] if config else (),
        gate=gate_options(gate, junit, read),
        parts=PARTS,
    )
    with options.exit_on_error():
        if form == "open-rag-eval":
            convert_to_open_rag_eval(wanted, output, settings, print_message)
        elif output != Path("-"):
            raise UsageError("--output: for --format open-rag-eval; the table goes to stdout")
        elif not run_report(wanted, settings, print_message, render_report):
            raise typer.Exit(1)


_SEGMENTS_SECONDS = 60.0  # an agent with 100 segments answers within a second


def segments(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files that `ragmeter score` wrote, in place of a running agent. One: each segment"
            " against the rest; two: the second against the first."
        ),
    ] = None,
    service: options.ServiceOption = None,
    metric: Annotated[
        str | None, typer.Option(help="This metric only; none: all with a better direction.")
    ] = None,
    window: Annotated[str | None, typer.Option(help="A window of the agent; none: 1h.")] = None,
    against: Annotated[
        ComparedWith | None,
        typer.Option(
            help="before: the segment's past, and how the rest has moved since; rest: the rest as"
            " it is now. None: before, if there is a past."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every metric and segment, not only findings.")
    ] = False,
    as_json: options.JsonOption = False,
    url: options.AgentUrlOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Show which segment moves a mean: estimates, shares and significance by segment.

    All comparisons of a service share one budget of false discoveries. The exit status is 1 if
    there is no segment to compare.
    """
    if files and (url or window):
        raise exit_error("--url and --window apply to a running agent, but files were given", 2)
    if files and len(files) > 2:
        raise exit_error("give one file, or two: before and now", 2)
    settings = options.load_or_exit(config)
    if files:
        document = _segments_of_files(
            files=files, settings=settings, service=service, metric=metric, against=against
        )
    else:
        query = {"service": service, "metric": metric, "window": window, "against": against}
        document = options.query_agent(
            settings,
            url,
            "/api/segments.json",
            "services",
            seconds=_SEGMENTS_SECONDS,
            params={k: v for k, v in query.items() if v is not None},
        )
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    if not document["segments"]:
        raise exit_error("there are no segments; set `segments: [model]` in the settings")
    if not document["services"]:
        raise exit_error(
            f"nothing is known of {service!r}" if service else "no trace is in any window"
        )
    if not as_json:
        _print_segments(document, every or metric is not None)


def _segments_of_files(
    files: list[Path],
    settings: Settings,
    service: str | None,
    metric: str | None,
    against: ComparedWith | None,
) -> dict[str, Any]:
    from ragmeter.app.parts import PARTS
    from ragmeter.core.metric_specs import find_spec
    from ragmeter.metrics.registry import metric_specs
    from ragmeter.offline.whole_file import fill_windows
    from ragmeter.parts.collection import find_kind
    from ragmeter.parts.views import SegmentTables

    if metric is not None and find_spec(metric_specs(), metric) is None:
        raise exit_error(f"metric {metric!r} is not known", 2)
    with options.exit_on_error():
        filled = [fill_windows(path, settings, print_message) for path in files]
        read = [windows for windows in filled if windows is not None]
        if len(read) < len(files):
            raise exit_error("no scored trace could be read")
        return find_kind(PARTS, SegmentTables).break_down_files(
            read,
            tags=settings.segments,
            service=service,
            metric=metric,
            against=against,
            say=print_message,
        )


def _print_segments(document: dict[str, Any], every: bool) -> None:
    from ragmeter.app.parts import PARTS
    from ragmeter.parts.collection import find_kind
    from ragmeter.parts.views import SegmentTables

    tables = find_kind(PARTS, SegmentTables)
    out = options.stdout_console(140)
    for service in document["services"]:
        out.print(tables.show_breakdown(service, document["window"], every))
