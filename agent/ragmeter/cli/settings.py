"""The commands `ragmeter config`: the settings in force, their check and their reference."""

from __future__ import annotations

import typer

from ragmeter.app.settings import render_reference
from ragmeter.cli import options
from ragmeter.config.loader import dump_settings
from ragmeter.console.terminal import stderr

config_app = typer.Typer(help="Show, check and document the settings.", no_args_is_help=True)


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
