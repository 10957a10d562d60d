"""Whether a command line is one that `ragmeter` has: what stands in an image or a chart is parsed
by the command itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from ragmeter.cli.main import app

__all__ = ["check"]


def check(arguments: Sequence[str]) -> None:
    """Raises what the command line itself would say where the arguments cannot be meant."""
    command: Any = typer.main.get_command(app)
    rest = list(arguments)
    while commands := getattr(command, "commands", None):
        assert rest[0] in commands, f"no such command: {rest[0]}"
        command = commands[rest.pop(0)]
    command.make_context(command.name, rest)
