"""Options and helpers that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ragmeter.config.loader import ConfigError, load_settings
from ragmeter.config.settings import Settings
from ragmeter.console.terminal import (
    escape_control,
    exit_error,
)
from ragmeter.kafka.operator.clients import KafkaCommandError, guarded

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
]


def load_or_exit(config: Path | None, overrides: dict[str, Any] | None = None) -> Settings:
    try:
        return load_settings(config, overrides=overrides)
    except ConfigError as error:
        raise exit_error(f"configuration: {error}", 2) from None


KafkaConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
]


class KafkaFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


@contextmanager
def connected_settings(config: Path | None) -> Iterator[Settings]:
    """The settings, with brokers that answer."""
    try:
        settings = load_settings(config)
    except ConfigError as error:
        raise exit_error(f"configuration: {error}", 2) from None
    try:
        with guarded(settings.kafka):
            yield settings
    except BrokenPipeError:
        raise  # the reader has seen enough
    except (KafkaCommandError, OSError) as error:
        raise exit_error(str(error)) from None


def escape_line(text: str) -> str:
    return escape_control(text).replace("\n", "\\n")


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(max(0.0, seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")
