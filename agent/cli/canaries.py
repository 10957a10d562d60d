"""The commands `ragmeter canary`: check and run canary suites."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragmeter.config.loader import ConfigError, load_settings
from ragmeter.config.settings import Settings
from ragmeter.console.terminal import escape_control, exit_error, print_message, stderr
from ragmeter.core.clocks import parse_duration

if TYPE_CHECKING:
    from ragmeter.canaries.runner import CanaryRound, CanaryRunner
    from ragmeter.canaries.suite import CanarySuite
    from ragmeter.canaries.verdicts import CanaryVerdict
    from ragmeter.core.process import SignalHandlers

canary_app = typer.Typer(
    help="Questions with known answers, sent to a service on a schedule.", no_args_is_help=True
)

TOKEN_VARIABLE = "RAGMETER_CANARY_TOKEN"
KEY_VARIABLE = "RAGMETER_CANARY_EMBEDDINGS_KEY"
FINISH_SECONDS = 15.0  # for what the agent has not taken when the last question was answered

SuiteFile = Annotated[Path, typer.Argument(metavar="SUITE", help="YAML, or JSON lines (.jsonl).")]
ServiceOption = Annotated[
    str | None, typer.Option("--service", help="The service in place of the suite's.")
]


def _load_suite(path: Path, service: str | None) -> CanarySuite:
    from ragmeter.canaries.suite import SuiteError, read_suite

    try:
        return read_suite(path, service)
    except SuiteError as error:
        raise exit_error(str(error), 2) from None
    except OSError as error:
        raise exit_error(f"{path}: {error.strerror}", 2) from None


def _parse_seconds(name: str, text: str) -> float:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise exit_error(f"{name}: {error}", 2) from None
    if not found:
        raise exit_error(f"{name}: more than 0 is needed", 2)
    return found


def _read_secret(name: str, file: Path | None) -> str | None:
    """From a file, else from the environment: a command line is seen by everybody."""
    if file is None:
        return os.environ.get(name) or None
    try:
        return file.read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        raise exit_error(f"{file}: cannot be read as ASCII text", 2) from None


@canary_app.command("check")
def check(file: SuiteFile, service: ServiceOption = None) -> None:
    """Check a suite and send nothing. Exit status 2 where it has a mistake."""
    suite = _load_suite(file, service)
    required = sum(question.required for question in suite.questions)
    stderr.print(
        escape_control(
            f"{suite.service}: {len(suite.questions)} questions, {required} of them required"
        ),
        markup=False,
    )


@canary_app.command("run")
def run(
    file: SuiteFile,
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
    service: ServiceOption = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=64, help="Most questions at a time.")
    ] = 1,
    per_minute: Annotated[
        float, typer.Option("--per-minute", min=0.1, max=6000, help="Most questions a minute.")
    ] = 60,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest time for an answer.")] = "60s",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help=f"Bearer token for the service; or {TOKEN_VARIABLE}."),
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
            f" its key: {KEY_VARIABLE}.",
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
        raise exit_error("--embeddings and --embedding-model go together", 2)
    try:
        settings = load_settings(config)
    except ConfigError as error:
        raise exit_error(f"configuration: {error}", 2) from None
    suite = _load_suite(file, service)
    pause = None if once else _parse_seconds("--every", every)
    found = _run_suite(
        settings, suite, endpoint, to, output, spool,
        pause=pause,
        concurrency=concurrency,
        per_minute=per_minute,
        seconds=_parse_seconds("--timeout", timeout),
        token=_read_secret(TOKEN_VARIABLE, token_file),
        embeddings=(embeddings, embedding_model),
    )  # fmt: skip
    raise typer.Exit(found)


def _run_suite(
    settings: Settings,
    suite: CanarySuite,
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

    from ragmeter.canaries.client import CanaryClient, UnknownTemplateName
    from ragmeter.canaries.delivery import SpoolError, TraceDelivery
    from ragmeter.canaries.runner import CanaryRunner, CanarySchedule
    from ragmeter.canaries.verdicts import AnswerSimilarity
    from ragmeter.core.process import SignalHandlers
    from ragmeter.server.client import agent_client, agent_url

    base = to or ("" if output else agent_url(settings.http, settings.http.otlp_port))
    base = base.rstrip("/")

    async def main() -> int:
        signals = SignalHandlers()
        try:
            url = httpx.URL(endpoint)
            if url.scheme not in ("http", "https") or not url.host:
                raise httpx.InvalidURL("--endpoint: http:// or https:// and a host are needed")
            client = (
                agent_client(settings.http, base, FINISH_SECONDS, sending=True) if base else None
            )
            asker = CanaryClient(suite, endpoint, seconds=seconds, token=token, environ=os.environ)
            delivery = TraceDelivery(client, base, file=output, spool=spool)
        except (httpx.InvalidURL, UnknownTemplateName, ValueError) as error:
            raise exit_error(f"{error}", 2) from None
        except ConfigError as error:
            raise exit_error(f"configuration: {error}", 2) from None
        except SpoolError as error:
            raise exit_error(str(error), 1) from None
        model = None
        if embeddings[0] and embeddings[1]:
            model = AnswerSimilarity(embeddings[0], embeddings[1], os.environ.get(KEY_VARIABLE))
        runner = CanaryRunner(
            suite,
            asker,
            delivery,
            CanarySchedule(pause, concurrency, per_minute),
            ks=settings.judge.k,
            told=_print_verdicts,
            ended=_print_summary,
            measure=model.measure if model else None,
        )
        delivery.start()
        stopping = asyncio.create_task(_stop_on_signal(signals, runner))
        try:
            async with asker:
                done = await runner.run()
        finally:
            stopping.cancel()
            if model is not None:
                await model.close()
            handed_over = await delivery.finish(FINISH_SECONDS)
        if pause is None:
            _print_summary(done)
        if not handed_over:
            kept = f"in {spool}" if spool else "and are lost; --spool FILE would keep them"
            print_message(f"{delivery.waiting} traces were not handed over {kept}")
        lost = delivery.dropped + delivery.refused
        if lost:
            print_message(f"{lost} traces were dropped or refused")
        if pause is not None:
            return 0 if handed_over and not lost else 1
        if not done.complete:
            return 130
        return 0 if done.passed and handed_over and not lost else 1

    try:
        return asyncio.run(main())
    except OSError as error:  # of the file that traces are written to
        raise exit_error(f"{error.filename or output}: {error.strerror}", 1) from None


async def _stop_on_signal(signals: SignalHandlers, runner: CanaryRunner) -> None:
    await signals.stop.wait()
    print_message("stopping after what is under way; again to end at once")
    runner.stop()


def _print_verdicts(found: CanaryVerdict) -> None:
    state = "passed" if found.passed else "FAILED" if found.required else "failed"
    note = "" if found.required else " (not required)"
    why = f": {'; '.join(found.failed)}" if found.failed else ""
    print_message(f"{state:6} {found.question}  {found.seconds:.2f} s{note}{why}")


def _print_summary(done: CanaryRound) -> None:
    passed = sum(one.passed for one in done.verdicts)
    left = done.questions - len(done.verdicts)
    print_message(
        f"{passed} of {done.questions} canaries passed"
        + (f", {left} were not asked" if left else "")
    )
