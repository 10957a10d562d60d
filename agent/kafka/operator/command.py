"""What the commands `ragmeter kafka ...` share: options, settings with brokers, lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agent.config import ConfigError, load
from agent.kafka.operator.clients import Failed, guarded
from agent.settings import Settings
from agent.terminal import failed, plain

__all__ = ["Config", "Shown", "connected", "moment", "one_line"]

Config = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with settings.")]


class Shown(StrEnum):
    TABLE = "table"
    JSON = "json"


@contextmanager
def connected(config: Path | None) -> Iterator[Settings]:
    """The settings, with brokers that answer."""
    try:
        settings = load(config)
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    try:
        with guarded(settings.kafka):
            yield settings
    except BrokenPipeError:
        raise  # the reader has seen enough
    except (Failed, OSError) as error:
        raise failed(str(error)) from None


def one_line(text: str) -> str:
    return plain(text).replace("\n", "\\n")


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(max(0.0, seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")
