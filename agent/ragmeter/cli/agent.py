"""The command `ragmeter run`: the embedded agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragmeter.app.settings import load_settings
from ragmeter.cli import options
from ragmeter.console.streams import discard_stdout, exit_error, print_message

if TYPE_CHECKING:
    from ragmeter.embedded.agent import EmbeddedAgent


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
    shown = True

    # an agent that replays nothing imports nothing that prints a replay
    def show(agent: EmbeddedAgent, url: str | None) -> None:
        from rich.text import Text

        from ragmeter.cli.replay_report import judge_report, page_links, service_report

        nonlocal shown
        out = options.stdout_console(100)
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

    def describe(agent: EmbeddedAgent) -> str:
        from ragmeter.cli.replay_report import describe_progress

        return describe_progress(agent)

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
                describe=describe,
            )
        )
    raise typer.Exit(status if shown or not exit_after_replay else 1)
