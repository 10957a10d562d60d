"""The commands `ragmeter rules ...`: the alert rules in the words of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.terminal import failed, plain, talk

__all__ = ["rules_app"]

rules_app = typer.Typer(help="The alert rules, for other programs.", no_args_is_help=True)


@rules_app.callback()
def _rules() -> None:
    """Keeps `prometheus` a word of its own."""


@rules_app.command("prometheus")
def prometheus(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", help="YAML file of rules over the default ones (alerts.rules)."),
    ] = None,
    runbooks: Annotated[
        str | None,
        typer.Option(
            "--runbooks",
            help="Where docs/runbooks is published (alerts.runbook_url); the links begin with it.",
        ),
    ] = None,
) -> None:
    """Print recording and alerting rules for Prometheus, with the agent's own thresholds."""
    from agent.alerts import RuleError
    from agent.alerts.runbooks import BASE
    from agent.config import ConfigError, load
    from agent.rules import rules_of
    from agent.slos import objectives
    from exporters.rules import rule_file

    alerts: dict[str, Any] = {"rules": str(rules)} if rules else {}
    if runbooks:
        alerts["runbook_url"] = None
    try:
        settings = load(config, overrides={"alerts": alerts})
        file = rule_file(
            rules_of(settings),
            objectives(settings.slos),
            windows=settings.windows,
            segments=settings.segments,
            drift=settings.drift.enabled,
            runbooks=runbooks or settings.alerts.runbook_url or BASE,
        )
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    except (RuleError, OSError) as error:
        raise failed(str(error), 2) from None
    for name, why in file.left.items():
        talk.print(plain(f"rule {name} is left out: {why}"), markup=False, emoji=False)
    typer.echo(file.text(), nl=False)
