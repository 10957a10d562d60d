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
from agent.terminal import plain, say, talk

__all__ = ["worker"]


def _fail(message: str, code: int) -> typer.Exit:
    talk.print(plain(f"ragmeter: {message}"), style="red", markup=False, emoji=False)
    return typer.Exit(code)


def worker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
) -> None:
    """Run one worker of the cluster: traces from Kafka in, gauges, alerts and the page out."""
    try:
        import faust  # noqa: F401
    except ModuleNotFoundError:
        raise _fail("this needs the extra: pip install 'ragmeter[kafka]'", 2) from None
    from agent.alerts import RuleError
    from agent.kafka.security import SecurityError
    from agent.kafka.worker import run_worker
    from agent.models.errors import ModelError
    from agent.ports import PortInUse
    from agent.rules import rules_of

    try:
        settings = load(config)
        rules = rules_of(settings)
        status = asyncio.run(run_worker(settings, rules, reread=lambda: load(config), say=say))
    except RuleError as error:
        raise _fail(str(error), 2) from None
    except (ConfigError, SecurityError) as error:
        raise _fail(f"configuration: {error}", 2) from None
    except ModelError as error:
        raise _fail(f"hhem.path: {error}", 1) from None
    except (PortInUse, OSError) as error:
        raise _fail(str(error), 1) from None
    if status:
        # a thread of Faust that hangs must not keep a failed worker from being restarted
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
