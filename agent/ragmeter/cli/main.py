"""The `ragmeter` command, with the commands run, score, backtest, schema and config."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel
from rich.text import Text
from typer.core import TyperGroup

from ragmeter import __version__
from ragmeter.app.settings import load_settings, render_reference
from ragmeter.cli import options
from ragmeter.cli.canaries import canary_app
from ragmeter.cli.catalogue import metrics_app, rules_app
from ragmeter.cli.inspection import inspect
from ragmeter.cli.kafka import kafka_app, worker
from ragmeter.cli.label import label
from ragmeter.cli.models import model_app
from ragmeter.cli.replay import replay
from ragmeter.cli.report import report, segments
from ragmeter.cli.running_agent import baseline_app, tail, watch
from ragmeter.config.loader import dump_settings
from ragmeter.console.terminal import (
    LogFormatter,
    StderrHandler,
    discard_stdout,
    exit_error,
    flush_stderr,
    prepare_streams,
    print_message,
    stderr,
)
from ragmeter.core import feedback
from ragmeter.core.child_call import limit_arenas
from ragmeter.core.feedback import Feedback
from ragmeter.metrics.registry import metric_catalogue
from ragmeter.trace import SCHEMA, Trace

# The commands by section of `ragmeter --help`, each section in the order of use.
SECTIONS = {
    "Measure a service": ("run", "worker", "watch", "tail", "label", "replay", "inspect"),
    "Evaluate files": ("score", "report", "segments", "backtest"),
    "Operate": ("canary", "baseline", "kafka", "model"),
    "Reference": ("config", "metrics", "rules", "schema"),
}


@contextmanager
def _plain_usage_errors() -> Iterator[None]:
    """Drop the prefix of pydantic, by which typer checks options, from usage errors."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


class _SectionedGroup(TyperGroup):
    """The commands in the order and the sections of `SECTIONS`."""

    @_plain_usage_errors()
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args)

    @_plain_usage_errors()
    def invoke(self, ctx: Any) -> Any:
        return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        order = [name for names in SECTIONS.values() for name in names]
        return sorted(self.commands, key=order.index)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, cmd_name)
        for title, names in SECTIONS.items():
            if cmd_name in names:
                command.rich_help_panel = title
        return command


app = typer.Typer(
    cls=_SectionedGroup,
    name="ragmeter",
    help="Measure the quality of a RAG service from its production traces.",
    no_args_is_help=True,
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
for _command in (inspect, label, worker, watch, tail, replay, report, segments):
    app.command()(_command)

# The format of a file of scores.
ScoreFormat = Literal["jsonl", "csv", "parquet", "open-rag-eval"]

# The documents that have a JSON Schema.
SchemaKind = Literal["trace", "feedback"]

SCHEMAS: dict[SchemaKind, tuple[str, type[BaseModel]]] = {
    "trace": (SCHEMA, Trace),
    "feedback": (feedback.SCHEMA, Feedback),
}


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"ragmeter {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log, on stderr.")
    ] = "text",
) -> None:
    handler = StderrHandler()
    handler.setFormatter(LogFormatter(as_json=log_format == "json"))
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with options.exit_on_error(2):
        metric_catalogue()  # a broken own metric ends every command


@app.command()
def run(
    config: options.ConfigOption = None,
    replay: Annotated[
        list[Path] | None,
        typer.Option(
            help="Read this file of traces first (JSON lines or array, gzip too; - is stdin)."
            " The time of the traces then counts, not the clock. May be repeated."
        ),
    ] = None,
    feedback: Annotated[
        list[Path] | None,
        typer.Option(
            help="Then read this file of labels (JSON lines or array, gzip too; - is stdin)."
            " May be repeated."
        ),
    ] = None,
    exit_after_replay: Annotated[
        bool, typer.Option("--exit-after-replay", help="End after the replay; open no port.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the state file first and start anew.")
    ] = False,
) -> None:
    """Run the embedded agent: traces in, gauges, alerts and the status page out."""
    from ragmeter.alerts.rule_sets import load_configured_rules
    from ragmeter.app.embedded_agent import run_agent
    from ragmeter.app.parts import PARTS
    from ragmeter.cli.replay_report import (
        describe_progress,
        judge_report,
        page_links,
        service_report,
    )
    from ragmeter.embedded.agent import EmbeddedAgent
    from ragmeter.parts.collection import file_documents
    from ragmeter.store.state_file import remove_state_file

    if exit_after_replay and not replay and not feedback:
        raise exit_error("--exit-after-replay needs --replay FILE or --feedback FILE", 2)
    settings = options.load_or_exit(config)
    if feedback and file_documents(PARTS, settings) is None:
        raise exit_error(
            "--feedback: feedback.traces is 0, so there is nothing to join labels to", 2
        )
    options.warn_unused_settings(settings, "run")
    out = options.stdout_console(100)
    shown = True

    def show(agent: EmbeddedAgent, url: str | None) -> None:
        nonlocal shown
        with agent.lock():
            services = agent.windows.services()
            parts = [part for one in services for part in service_report(agent, one)]
            parts += judge_report(agent, settings.judge)
            links = list(page_links(agent, url)) if url else []
        try:
            for part in parts:
                # ids are cut by no line break, so that they can be copied
                out.print(part, soft_wrap=isinstance(part, Text))
            for number, link in enumerate(links, 1):
                out.print(f"open {number}: {link}", markup=False, soft_wrap=True)
        except OSError as error:  # the state is sound, and the served pages do not need stdout
            shown = False
            discard_stdout()
            if not isinstance(error, BrokenPipeError):
                print_message(f"cannot write to standard output: {error.strerror}")

    with options.exit_on_error():
        rules = load_configured_rules(settings)
        if fresh:
            remove_state_file(settings.state.path)
        status = asyncio.run(
            run_agent(
                settings,
                rules,
                files=replay or [],
                feedback=feedback or [],
                exit_after_replay=exit_after_replay,
                reread=lambda: load_settings(config),
                say=print_message,
                show=show,
                describe=describe_progress,
            )
        )
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


@app.command()
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


@app.command()
def schema(of: Annotated[SchemaKind, typer.Argument(help="What to describe.")] = "trace") -> None:
    """Print the JSON Schema of a native trace or of feedback."""
    name, model = SCHEMAS[of]
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **model.model_json_schema(),
    }
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


@config_app.command("show")
def config_show(config: options.ConfigOption = None) -> None:
    """Print the settings in force; secrets are hidden."""
    typer.echo(dump_settings(options.load_or_exit(config)), nl=False)


@config_app.command("check")
def config_check(config: options.ConfigOption = None) -> None:
    """Check the settings and what they name: rules, probes, key files, ports, the local model."""
    from ragmeter.app.exports import check_settings

    settings = options.load_or_exit(config)
    with options.exit_on_error(2):
        rules = check_settings(settings)
    stderr.print(f"the configuration is sound; {rules} alert rules")


@config_app.command("reference")
def config_reference() -> None:
    """Print every setting with its default, as Markdown."""
    typer.echo(render_reference(), nl=False)


def _join_help_lines(group: typer.Typer) -> None:
    """Make each paragraph of the commands' help one line; the terminal's width then wraps it."""
    for command in group.registered_commands:
        text = cleandoc(command.help or command.callback.__doc__ or "")
        command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _join_help_lines(inner.typer_instance)


def main() -> None:
    """Run the command line.

    If standard output cannot be written, it prints one line instead of a traceback, and nothing if
    the reader of a pipe has gone.
    """
    prepare_streams()
    limit_arenas()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        discard_stdout()
        if not isinstance(error, BrokenPipeError):
            exit_error(f"cannot write to standard output: {error.strerror or error}", 1)
        sys.exit(1)
    finally:
        flush_stderr()


_join_help_lines(app)
