"""Options and helpers that several commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError, explicit_settings
from ragmeter.config.scoring import JudgeSettings
from ragmeter.config.settings import Settings
from ragmeter.console.streams import escape_control, exit_error, print_message
from ragmeter.core.errors import RagmeterError, UnusableResource, UsageError
from ragmeter.core.label_bounds import excerpt

if TYPE_CHECKING:
    from rich.console import Console

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
]
AgentUrlOption = Annotated[
    str | None, typer.Option("--url", help="The agent's metrics port; none: as the settings say.")
]
ServiceOption = Annotated[str | None, typer.Option("--service", help="This service only.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]

_SILENT_SECONDS = 30.0  # a running agent sends a line every 10 s

UNREADABLE_LINE = "the agent sent a line that this version cannot read; are the versions the same?"

# How a command prints what it found.
TableFormat = Literal["table", "json"]


@contextmanager
def exit_on_error(status: int = 1, *, model: str = "local model: ") -> Iterator[None]:
    """End the command with one line where the block fails on purpose or for the system.

    A mistake in what the user wrote (options, settings, rules, suites) ends it with exit status 2,
    whatever else with `status`: what these name cannot be used, a service does not answer, or
    nothing could be read.

    Args:
        status: Exit status of other errors.
        model: What errors of the local model begin with.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has seen enough
    except (RagmeterError, OSError, UnicodeDecodeError) as error:
        from ragmeter.scorers.hhem.model import ModelError  # late: most commands need no model

        if isinstance(error, ConfigError):
            raise exit_error(f"configuration: {error}", 2) from None
        if isinstance(error, UsageError) and not isinstance(error, UnusableResource):
            raise exit_error(str(error), 2) from None
        if isinstance(error, OSError) and error.filename is not None:
            raise exit_error(f"{error.filename}: {error.strerror}", status) from None
        raise exit_error(f"{model * isinstance(error, ModelError)}{error}", status) from None


def load_or_exit(config: Path | None, overrides: dict[str, Any] | None = None) -> Settings:
    """Load the settings; a mistake ends the command with exit status 2."""
    with exit_on_error():
        return load_settings(config, overrides=overrides)


# Settings of the sampling and the budget of a running agent.
OFFLINE_UNUSED = (
    "judge.budget",
    "judge.probes",
    "sampling",
)


def _can_compare(judge: JudgeSettings) -> bool:
    # late: most agents ask no judge
    from ragmeter.scorers.judge.second_opinion import second_settings

    return second_settings(judge) is not None


def warn_unused_settings(settings: Settings, command: str, unused: Sequence[str] = ()) -> None:
    """Say which settings of scoring were set and have no effect in a command.

    `unused` are keys, or the beginnings of keys, that the command does not read.
    """
    judge = settings.judge
    reasons = [(key, "") for key in unused]
    if judge.base_url is None:
        reasons.append(("judge", "judge.base_url is not set"))
    elif judge.second.share == 0:
        reasons.append(("judge.second", "judge.second.share is 0"))
    elif not _can_compare(judge):
        reasons.append(("judge.second", "nothing of judge.metrics can be compared"))
    if settings.hhem.path is None:
        reasons.append(("hhem", "hhem.path is not set"))
    # the cut-offs are those of labels and canaries too
    used = ["judge.k", "hhem.path"] + ["judge.second.share"] * (judge.second.share == 0)
    keys: dict[str, list[str]] = {}
    for key in explicit_settings(settings):
        why = [why for name, why in reasons if f"{key}.".startswith(f"{name}.")]
        if why and key not in used:
            keys.setdefault(why[0], []).append(key)
    for reason, names in keys.items():
        because = f": {reason}" if reason else ""
        print_message(f"without effect in `ragmeter {command}`: {', '.join(names)}{because}")


def check_url(option: str, text: str) -> None:
    """End the command unless an option holds an http or https URL with a host."""
    import httpx  # late: most commands need no client

    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise exit_error(f"{option}: {error}", 2) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise exit_error(f"{option}: http:// or https:// and a host are needed", 2)
    if (url.port or 0) >= 2**16:
        raise exit_error(f"{option}: there is no port {url.port}", 2)


def query_agent(
    settings: Settings,
    url: str | None,
    path: str,
    key: str,
    *,
    seconds: float,
    params: Mapping[str, str] | None = None,
    post: Any = None,
) -> dict[str, Any]:
    """Query the API of a running agent; whatever goes wrong ends the command.

    The settings name its port and token, `url` another base URL. Every answer of an agent has the
    key `key`. `post` is JSON to post; None makes a GET request.
    """
    # late: most commands need no client
    import httpx

    from ragmeter.server.client import agent_client, agent_url, reply_object

    base = (url or agent_url(settings.http)).rstrip("/")
    where = f"{base}{path}"
    # ASCII: a name on the command line may hold bytes that are not text
    content = None if post is None else json.dumps(post)
    try:
        with exit_on_error(), agent_client(settings.http, base, seconds) as client:
            reply = client.request(
                "GET" if post is None else "POST",
                where,
                params=params,
                content=content,
                headers={"Content-Type": "application/json"},
            )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"{error or type(error).__name__}; is `ragmeter run` up?"
        raise exit_error(f"{where}: {problem}") from None
    document = reply_object(reply)
    if document is not None and reply.status_code != 200:
        raise exit_error(f"{where}: {document.get('error') or f'status {reply.status_code}'}")
    if document is None or key not in document:
        said = f"status {reply.status_code}: {excerpt(reply.text, 100)}"
        hint = "; set http.token to that of the agent" if reply.status_code == 401 else ""
        raise exit_error(f"{where}: no answer of an agent ({said}){hint}")
    return document


def stream_agent(settings: Settings, url: str | None, path: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that a running agent streams; its end or an error ends the command.

    The settings name its port and token, `url` another base URL.
    """
    # late: most commands need no client
    import httpx

    from ragmeter.server.client import agent_client, agent_url

    base = (url or agent_url(settings.http)).rstrip("/")
    with exit_on_error():
        client = agent_client(settings.http, base, _SILENT_SECONDS)
    try:
        with client, client.stream("GET", f"{base}{path}") as reply:
            if reply.status_code != 200:
                raise exit_error(f"{base}: {reply.status_code} {reply.reason_phrase}")
            print_message(f"watching {base}; send traffic")
            for line in filter(str.strip, reply.iter_lines()):
                try:
                    item = json.loads(line)
                except (ValueError, RecursionError):
                    item = None
                if isinstance(item, dict):
                    yield item
                else:
                    print_message(UNREADABLE_LINE)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise exit_error(
            f"{base}: {error or type(error).__name__}; is `ragmeter run` up?"
        ) from None
    raise exit_error(f"{base}: the agent has ended")


@contextmanager
def connected_settings(config: Path | None) -> Iterator[Settings]:
    """Yield the settings once a broker answers; an error of Kafka ends the command."""
    from ragmeter.kafka.operator.clients import guarded

    settings = load_or_exit(config)
    with exit_on_error(), guarded(settings.kafka):
        yield settings


def stdout_console(width: int) -> Console:
    """Return a console on stdout, as wide as the terminal or `width` columns without one."""
    from rich.console import Console  # late: a running agent prints by none

    return Console(width=None if sys.stdout.isatty() else width, highlight=False)


def escape_line(text: str) -> str:
    """Escape control characters and line breaks."""
    return escape_control(text).replace("\n", "\\n")


def format_time(seconds: float, to: Literal["minutes", "seconds"] = "seconds") -> str:
    """Format Unix seconds as a UTC time, to the minute or the second."""
    return datetime.fromtimestamp(max(0.0, seconds), UTC).replace(tzinfo=None).isoformat(" ", to)
