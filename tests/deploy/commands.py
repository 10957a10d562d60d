"""Whether a command line is one that `ragmeter` has: what stands in an image or a chart is parsed
by the command itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import pytest
import typer
from ragmeter.cli.main import app

__all__ = ["check"]

KAFKA = ("worker", "kafka")


def check(arguments: Sequence[str]) -> None:
    """Raises what the command line itself would say where the arguments cannot be meant."""
    if arguments[0] in KAFKA and importlib.util.find_spec("ragmeter.kafka") is None:
        pytest.skip("this agent has no workers yet")
    command: Any = typer.main.get_command(app)
    rest = list(arguments)
    while commands := getattr(command, "commands", None):
        assert rest[0] in commands, f"no such command: {rest[0]}"
        command = commands[rest.pop(0)]
    command.make_context(command.name, rest)
