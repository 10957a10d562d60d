"""The `ragmeter` command: its commands by name, its options, and how it ends."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ragmeter import __version__
from ragmeter.console.streams import (
    LogFormatter,
    StderrHandler,
    discard_stdout,
    exit_error,
    flush_stderr,
    prepare_streams,
)
from ragmeter.core.child_call import limit_arenas

# The commands by section of `ragmeter --help`, each section in the order of use, with the place of
# each: a function, or a group of commands.
SECTIONS = {
    "Measure a service": {
        "run": "ragmeter.cli.agent:run",
        "worker": "ragmeter.cli.kafka:worker",
        "watch": "ragmeter.cli.running_agent:watch",
        "tail": "ragmeter.cli.running_agent:tail",
        "label": "ragmeter.cli.label:label",
        "replay": "ragmeter.cli.replay:replay",
        "inspect": "ragmeter.cli.inspection:inspect",
    },
    "Evaluate files": {
        "score": "ragmeter.cli.scoring:score",
        "report": "ragmeter.cli.report:report",
        "segments": "ragmeter.cli.report:segments",
        "backtest": "ragmeter.cli.scoring:backtest",
    },
    "Operate": {
        "canary": "ragmeter.cli.canaries:canary_app",
        "baseline": "ragmeter.cli.running_agent:baseline_app",
        "kafka": "ragmeter.cli.kafka:kafka_app",
        "model": "ragmeter.cli.models:model_app",
    },
    "Reference": {
        "config": "ragmeter.cli.settings:config_app",
        "metrics": "ragmeter.cli.catalogue:metrics_app",
        "rules": "ragmeter.cli.catalogue:rules_app",
        "schema": "ragmeter.cli.catalogue:schema",
    },
}


@contextmanager
def _plain_usage_errors() -> Iterator[None]:
    """Drop the prefix of pydantic, by which typer checks options, from usage errors."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


class _Commands(MutableMapping[str, Any]):
    """The commands by name, each imported and built when it is asked for.

    To build all of them takes as long as an agent takes to load its settings and its state.
    """

    def __init__(self) -> None:
        self._places = {
            name: (title, place)
            for title, names in SECTIONS.items()
            for name, place in names.items()
        }
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            title, place = self._places[name]
            self._built[name] = _build_command(name, place)
            self._built[name].rich_help_panel = title
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _build_command(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    holder = typer.Typer()
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name=name)(found)
    _join_help_lines(holder)
    return typer.main.get_group(holder).commands[name]


def _join_help_lines(group: typer.Typer) -> None:
    """Make each paragraph of the commands' help one line; the terminal's width then wraps it."""
    for command in group.registered_commands:
        text = cleandoc(command.help or command.callback.__doc__ or "")
        command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _join_help_lines(inner.typer_instance)


class _CommandGroup(TyperGroup):
    """The commands in the order and the sections of `SECTIONS`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands()

    @_plain_usage_errors()
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args)

    @_plain_usage_errors()
    def invoke(self, ctx: Any) -> Any:
        return super().invoke(ctx)


app = typer.Typer(
    cls=_CommandGroup,
    name="ragmeter",
    help="Measure the quality of a RAG service from its production traces.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
    # late: help and completion, which end before this, need neither
    from ragmeter.cli import options
    from ragmeter.metrics.registry import metric_catalogue

    handler = StderrHandler()
    handler.setFormatter(LogFormatter(as_json=log_format == "json"))
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with options.exit_on_error(2):
        metric_catalogue()  # a broken own metric ends every command


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
