"""The commands of `ragmeter`. Machine output goes to stdout, talk to stderr; exit 0 done, 1
failed, 2 a mistake in the call or the configuration, 130 interrupted before or outside of `run`'s
orderly stop, which is 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from agent import __version__
from agent.baselines_cli import baseline_app
from agent.breakdown.cli import segments
from agent.canaries.cli import canary_app
from agent.config import ConfigError, Settings, dump, load
from agent.config_reference import reference
from agent.feedback import labels
from agent.feedback.labels import Feedback
from agent.inspect_cli import inspect
from agent.kafka.operator.cli import kafka_app
from agent.kafka.worker_cli import worker
from agent.metrics.cli import metrics_app
from agent.metrics.entry_points import OwnMetricError, load_own_metrics
from agent.models.cli import model_app
from agent.replay.cli import replay
from agent.report.cli import report
from agent.rules_cli import rules_app
from agent.terminal import failed, prepare, say, silence, talk
from agent.trace import SCHEMA, Trace

__all__ = ["app", "main"]

app = typer.Typer(
    name="ragmeter",
    help="Measure the quality of a RAG service from its production traces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Show, check and document the settings.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(model_app, name="model")
app.add_typer(baseline_app, name="baseline")
app.add_typer(canary_app, name="canary")
app.add_typer(kafka_app, name="kafka")
app.add_typer(rules_app, name="rules")
app.add_typer(metrics_app, name="metrics")
app.command()(inspect)
app.command()(worker)
app.command()(replay)
app.command()(report)
app.command()(segments)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
]


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    OPEN_RAG_EVAL = "open-rag-eval"


class Kind(StrEnum):
    TRACE = "trace"
    FEEDBACK = "feedback"


SCHEMAS: dict[Kind, tuple[str, type[BaseModel]]] = {
    Kind.TRACE: (SCHEMA, Trace),
    Kind.FEEDBACK: (labels.SCHEMA, Feedback),
}


class Shown(StrEnum):
    TABLE = "table"
    JSON = "json"


def _load(config: Path | None, overrides: dict[str, Any] | None = None) -> Settings:
    try:
        return load(config, overrides=overrides)
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None


def _version(value: bool) -> None:
    if value:
        typer.echo(f"ragmeter {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(message)s",
        datefmt="%H:%M:%S",
        handlers=[RichHandler(console=talk, show_path=False, markup=False, rich_tracebacks=False)],
        force=True,
    )
    for noisy in ("httpx", "httpcore", "asyncio", "matplotlib"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        load_own_metrics()
    except OwnMetricError as error:
        raise failed(str(error), 2) from None


@app.command()
def run(
    config: ConfigOption = None,
    replay: Annotated[
        list[Path] | None,
        typer.Option(
            "--replay",
            help="Read this file of traces first (JSON lines or array, gzip too; - is stdin)."
            " Time then follows the traces, not the clock. May be repeated.",
        ),
    ] = None,
    feedback: Annotated[
        list[Path] | None,
        typer.Option(
            "--feedback",
            help="Then read this file of labels (JSON lines or array, gzip too; - is stdin)."
            " May be repeated.",
        ),
    ] = None,
    exit_after_replay: Annotated[
        bool, typer.Option("--exit-after-replay", help="End after the replay; open no port.")
    ] = False,
    state: Annotated[Path | None, typer.Option("--state", help="State file (state.path).")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the state file first and start anew.")
    ] = False,
) -> None:
    """Run the embedded agent: traces in, gauges, alerts and the status page out."""
    from agent.alerts import RuleError
    from agent.models.errors import ModelError
    from agent.pipeline import Instrument
    from agent.ports import PortInUse
    from agent.rules import rules_of
    from agent.runner import run as run_agent
    from agent.store.open import StateError, remove
    from agent.table import alerts_table, windows_table, worst_table

    if exit_after_replay and not replay and not feedback:
        raise failed("--exit-after-replay needs --replay FILE or --feedback FILE", 2)
    overrides = {"state": {"path": str(state)}} if state else None
    settings = _load(config, overrides)
    if feedback and not settings.feedback.traces:
        raise failed("--feedback: feedback.traces is 0, so there is nothing to join labels to", 2)
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)

    shown = True

    def show(instrument: Instrument) -> None:
        nonlocal shown
        with instrument.lock():
            tables: list[Table | None] = []
            for service in instrument.windows.services():
                tables.append(windows_table(instrument, service))
                tables.append(worst_table(instrument, service))
            tables.append(alerts_table(instrument))
        try:
            for table in filter(None, tables):
                out.print(table)
        except OSError as error:  # what is measured stands; a served page does not need stdout
            shown = False
            silence()
            if not isinstance(error, BrokenPipeError):
                say(f"cannot write to standard output: {error.strerror}")

    try:
        rules = rules_of(settings)
        if fresh:
            remove(settings.state.path)
        status = asyncio.run(
            run_agent(
                settings,
                rules,
                files=replay or [],
                feedback=feedback or [],
                exit_after_replay=exit_after_replay,
                reread=lambda: load(config, overrides=overrides),
                say=say,
                show=show,
            )
        )
    except RuleError as error:
        raise failed(str(error), 2) from None
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    except ModelError as error:
        raise failed(f"hhem.path: {error}", 1) from None
    except (StateError, PortInUse, OSError) as error:
        raise failed(str(error), 1) from None
    raise typer.Exit(status if shown or not exit_after_replay else 1)


@app.command()
def score(
    file: Annotated[
        Path, typer.Argument(help="Traces: JSON lines or array, gzip too; - is stdin.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write; - is stdout.")
    ] = Path("-"),
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="jsonl: one object a trace; csv: one column a metric and scorer; open-rag-eval:"
            " the columns of that tool, with questions, passages and answers.",
        ),
    ] = Format.JSONL,
    feedback: Annotated[
        Path | None,
        typer.Option("--feedback", help="Labels of these traces: JSON lines or array, gzip too."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Score each trace of a file offline: every metric, no sampling.

    Results that the judge or the model failed to give are unscored, each with its reason, and
    counted at the end. The exit status is 1 where one that was asked gave no result at all.
    """
    from agent.instruments import Instruments
    from agent.models.errors import ModelError
    from agent.offline import SameFile, score_file

    settings = _load(config)
    try:
        scorers = Instruments(settings).scorers
        done = asyncio.run(score_file(file, output, form, settings, say, scorers, feedback))
    except SameFile as error:
        raise failed(str(error), 2) from None
    except ModelError as error:
        raise failed(f"hhem.path: {error}", 1) from None
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        raise failed(str(error), 1) from None
    talk.print(f"{done.traces} traces scored, {done.bad} items unreadable")
    for line in done.lines():
        say(line)
    if (done.bad and not done.traces) or done.dead:
        raise typer.Exit(1)


@app.command()
def backtest(
    file: Annotated[
        Path, typer.Argument(help="What `ragmeter score` wrote: JSON lines, gzip too; - is stdin.")
    ],
    rules: Annotated[
        Path | None,
        typer.Option("--rules", help="YAML file of rules over the default ones (alerts.rules)."),
    ] = None,
    config: ConfigOption = None,
    form: Annotated[
        Shown,
        typer.Option(
            "--format", "-f", help="table: what would have fired; json: that and every estimate."
        ),
    ] = Shown.TABLE,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the alerts over time into this SVG file.")
    ] = None,
) -> None:
    """Replay scored traces through windows and rules: what would have fired, and when."""
    from agent.alerts import RuleError
    from agent.backtest_run import run_backtest
    from agent.outputs import UsageError
    from agent.rules import rules_of

    settings = _load(config, {"alerts": {"rules": str(rules)}} if rules else None)
    try:
        known = rules_of(settings)
    except (RuleError, OSError) as error:
        raise failed(str(error), 2) from None
    try:
        found = run_backtest(
            file, settings, known, form, picture, say, apart=[p for p in (rules, config) if p]
        )
    except UsageError as error:
        raise failed(str(error), 2) from None
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        raise failed(str(error), 1) from None
    if not found:
        raise failed(f"{file}: no scored trace could be read", 1)


@app.command()
def schema(
    of: Annotated[Kind, typer.Argument(help="What is to be sent.")] = Kind.TRACE,
) -> None:
    """Print the JSON Schema of a native trace, or of feedback."""
    name, model = SCHEMAS[of]
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **model.model_json_schema(),
    }
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


@config_app.command("show")
def config_show(config: ConfigOption = None) -> None:
    """Print the settings in force; secrets are hidden."""
    typer.echo(dump(_load(config)), nl=False)


@config_app.command("check")
def config_check(config: ConfigOption = None) -> None:
    """Check the settings and what they name: rules, probes, key files, ports, the local model."""
    from agent.alerts import RuleError
    from agent.instruments import Instruments
    from agent.listener.access import Access
    from agent.models.errors import ModelError
    from agent.rules import rules_of
    from exporters.otel import ResultsExporter

    settings = _load(config)
    try:
        rules = rules_of(settings)
        Instruments(settings, watched=True)
        ResultsExporter(settings.results_export)
        Access(settings)
        for endpoint in (settings.judge, settings.judge.second):
            if endpoint.api_key_file is not None:
                endpoint.api_key_file.read_text("ascii")
    except ModelError as error:
        raise failed(f"hhem.path: {error}", 2) from None
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    except (RuleError, OSError, UnicodeDecodeError) as error:
        raise failed(str(error), 2) from None
    talk.print(f"the configuration is sound; {len(rules)} alert rules")


@config_app.command("reference")
def config_reference() -> None:
    """Print every setting with its default, as Markdown."""
    typer.echo(reference(), nl=False)


def main() -> None:
    """The entry point: output that cannot be written is one line and not a traceback, and none
    at all where the reader of a pipe has gone.
    """
    prepare()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        silence()
        if not isinstance(error, BrokenPipeError):
            failed(f"cannot write to standard output: {error.strerror or error}", 1)
        sys.exit(1)


if __name__ == "__main__":
    main()
