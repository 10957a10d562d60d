"""The command `ragmeter worker`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.config import ConfigError, load
from agent.terminal import failed, say

__all__ = ["worker"]


def worker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
) -> None:
    """Run one worker of the cluster: traces from Kafka in, gauges, alerts and the page out.

    SIGTERM ends it (exit 0), SIGHUP reads sampling and redaction again. Exit 1: it could not go
    on, and a restart goes on where it stopped; 2: a mistake in the configuration.
    """
    try:
        import faust  # noqa: F401
        import uvloop
    except ModuleNotFoundError:
        raise failed("this needs the extra: pip install 'ragmeter[kafka]'", 2) from None
    from agent.alerts import RuleError
    from agent.kafka.security import SecurityError
    from agent.kafka.worker import run_worker
    from agent.models.errors import ModelError
    from agent.ports import PortInUse
    from agent.rules import rules_of

    try:
        settings = load(config)
        rules = rules_of(settings)
        # a turn of its loop, and a task, take half the time that asyncio's do
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(run_worker(settings, rules, reread=lambda: load(config), say=say))
    except RuleError as error:
        raise failed(str(error), 2) from None
    except (ConfigError, SecurityError) as error:
        raise failed(f"configuration: {error}", 2) from None
    except ModelError as error:
        raise failed(f"hhem.path: {error}", 1) from None
    except (PortInUse, OSError) as error:
        raise failed(str(error), 1) from None
    if status:
        # a thread of Faust that hangs must not keep a failed worker from being restarted
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
