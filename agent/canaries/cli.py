"""The commands `ragmeter canary ...`: questions with known answers, sent to a service."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.alerts.durations import parse_duration
from agent.config import ConfigError, Settings, load
from agent.terminal import failed, plain, say, talk

if TYPE_CHECKING:
    from agent.canaries.runner import Round, Runner
    from agent.canaries.suite import Suite
    from agent.canaries.verdicts import Verdict
    from agent.signals import Signals

__all__ = ["canary_app"]

canary_app = typer.Typer(
    help="Questions with known answers, sent to a service on a schedule.", no_args_is_help=True
)

TOKEN = "RAGMETER_CANARY_TOKEN"
KEY = "RAGMETER_CANARY_EMBEDDINGS_KEY"
FINISH_SECONDS = 15.0  # for what the agent has not taken when the last question was answered

File = Annotated[Path, typer.Argument(metavar="SUITE", help="YAML, or JSON lines (.jsonl).")]
Service = Annotated[
    str | None, typer.Option("--service", help="The service in place of the suite's.")
]


def _suite(path: Path, service: str | None) -> Suite:
    from agent.canaries.reading import SuiteError, read_suite

    try:
        return read_suite(path, service)
    except SuiteError as error:
        raise failed(str(error), 2) from None
    except OSError as error:
        raise failed(f"{path}: {error.strerror}", 2) from None


def _seconds(name: str, text: str) -> float:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise failed(f"{name}: {error}", 2) from None
    if not found:
        raise failed(f"{name}: more than 0 is needed", 2)
    return found


def _secret(name: str, file: Path | None) -> str | None:
    """From a file, else from the environment: a command line is seen by everybody."""
    if file is None:
        return os.environ.get(name) or None
    try:
        return file.read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        raise failed(f"{file}: cannot be read as ASCII text", 2) from None


@canary_app.command("check")
def check(file: File, service: Service = None) -> None:
    """Check a suite and send nothing. Exit status 2 where it has a mistake."""
    suite = _suite(file, service)
    required = sum(question.required for question in suite.questions)
    talk.print(
        plain(f"{suite.service}: {len(suite.questions)} questions, {required} of them required"),
        markup=False,
    )


@canary_app.command("run")
def run(
    file: File,
    endpoint: Annotated[
        str, typer.Option("--endpoint", help="URL of the service that answers questions.")
    ],
    every: Annotated[
        str, typer.Option("--every", help="From the start of a round to that of the next.")
    ] = "15m",
    once: Annotated[
        bool, typer.Option("--once", help="One round; exit status 1 where a canary fails.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", help="The agent's port for traces; none: as the settings say."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Append the traces to this file; no agent but --to."),
    ] = None,
    service: Service = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=64, help="Most questions at a time.")
    ] = 1,
    per_minute: Annotated[
        float, typer.Option("--per-minute", min=0.1, max=6000, help="Most questions a minute.")
    ] = 60,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest time for an answer.")] = "60s",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help=f"Bearer token for the service; or {TOKEN}."),
    ] = None,
    spool: Annotated[
        Path | None,
        typer.Option("--spool", help="Keep here what the agent has not taken; read at the start."),
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            help="Base URL (/v1) of an OpenAI-compatible API, for answer_correctness;"
            f" its key: {KEY}.",
        ),
    ] = None,
    embedding_model: Annotated[
        str | None, typer.Option("--embedding-model", help="Model to ask there.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with the agent's settings.")
    ] = None,
) -> None:
    """Send each question of a suite to a service, and the answers with their references on.

    A question that fails is a trace with status error or timeout. Ctrl-C ends after what is under
    way. With --once the exit status is 0 where every required canary passes and its trace was
    handed over, 1 where not, 130 where it was interrupted.
    """
    if (embeddings is None) != (embedding_model is None):
        raise failed("--embeddings and --embedding-model go together", 2)
    try:
        settings = load(config)
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    suite = _suite(file, service)
    pause = None if once else _seconds("--every", every)
    found = _run(
        settings, suite, endpoint, to, output, spool,
        pause=pause,
        concurrency=concurrency,
        per_minute=per_minute,
        seconds=_seconds("--timeout", timeout),
        token=_secret(TOKEN, token_file),
        embeddings=(embeddings, embedding_model),
    )  # fmt: skip
    raise typer.Exit(found)


def _run(
    settings: Settings,
    suite: Suite,
    endpoint: str,
    to: str | None,
    output: Path | None,
    spool: Path | None,
    *,
    pause: float | None,
    concurrency: int,
    per_minute: float,
    seconds: float,
    token: str | None,
    embeddings: tuple[str | None, str | None],
) -> int:
    import httpx

    from agent.canaries.asking import Asker, UnknownName
    from agent.canaries.delivery import Delivery, SpoolError
    from agent.canaries.runner import Pace, Runner
    from agent.canaries.similarity import Similarity
    from agent.listener.client import agent_client, agent_url
    from agent.signals import Signals

    base = to or ("" if output else agent_url(settings.http, settings.http.otlp_port))
    base = base.rstrip("/")

    async def main() -> int:
        signals = Signals()
        try:
            url = httpx.URL(endpoint)
            if url.scheme not in ("http", "https") or not url.host:
                raise httpx.InvalidURL("--endpoint: http:// or https:// and a host are needed")
            client = (
                agent_client(settings.http, base, FINISH_SECONDS, sending=True) if base else None
            )
            asker = Asker(suite, endpoint, seconds=seconds, token=token, environ=os.environ)
            delivery = Delivery(client, base, file=output, spool=spool)
        except (httpx.InvalidURL, UnknownName, ValueError) as error:
            raise failed(f"{error}", 2) from None
        except ConfigError as error:
            raise failed(f"configuration: {error}", 2) from None
        except SpoolError as error:
            raise failed(str(error), 1) from None
        model = None
        if embeddings[0] and embeddings[1]:
            model = Similarity(embeddings[0], embeddings[1], os.environ.get(KEY))
        runner = Runner(
            suite,
            asker,
            delivery,
            Pace(pause, concurrency, per_minute),
            ks=settings.judge.k,
            told=_tell,
            ended=_sum_up,
            measure=model.measure if model else None,
        )
        delivery.start()
        stopping = asyncio.create_task(_stop_with(signals, runner))
        try:
            async with asker:
                done = await runner.run()
        finally:
            stopping.cancel()
            if model is not None:
                await model.close()
            handed_over = await delivery.finish(FINISH_SECONDS)
        if pause is None:
            _sum_up(done)
        if not handed_over:
            kept = f"in {spool}" if spool else "and are lost; --spool FILE would keep them"
            say(f"{delivery.waiting} traces were not handed over {kept}")
        lost = delivery.dropped + delivery.refused
        if lost:
            say(f"{lost} traces were dropped or refused")
        if pause is not None:
            return 0 if handed_over and not lost else 1
        if not done.whole:
            return 130
        return 0 if done.passed and handed_over and not lost else 1

    try:
        return asyncio.run(main())
    except OSError as error:  # of the file that traces are written to
        raise failed(f"{error.filename or output}: {error.strerror}", 1) from None


async def _stop_with(signals: Signals, runner: Runner) -> None:
    await signals.stop.wait()
    say("stopping after what is under way; again to end at once")
    runner.stop()


def _tell(found: Verdict) -> None:
    state = "passed" if found.passed else "FAILED" if found.required else "failed"
    note = "" if found.required else " (not required)"
    why = f": {'; '.join(found.failed)}" if found.failed else ""
    say(f"{state:6} {found.question}  {found.seconds:.2f} s{note}{why}")


def _sum_up(done: Round) -> None:
    passed = sum(one.passed for one in done.verdicts)
    left = done.questions - len(done.verdicts)
    say(
        f"{passed} of {done.questions} canaries passed"
        + (f", {left} were not asked" if left else "")
    )
