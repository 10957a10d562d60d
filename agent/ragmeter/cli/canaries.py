"""The commands `ragmeter canary`: check and run canary suites."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragmeter.cli import options
from ragmeter.cli.report import GateOption, JunitOption, gate_options
from ragmeter.console.streams import exit_error, print_message
from ragmeter.core.durations import parse_duration

if TYPE_CHECKING:
    from ragmeter.canaries.client import CanaryClient
    from ragmeter.canaries.delivery import TraceDelivery
    from ragmeter.canaries.runner import CanaryRound, CanaryRunner
    from ragmeter.canaries.suite import CanarySuite
    from ragmeter.canaries.verdicts import CanaryVerdict
    from ragmeter.config.settings import Settings
    from ragmeter.core.process import SignalHandlers
    from ragmeter.core.score import Score
    from ragmeter.offline.report.gate import GateOptions
    from ragmeter.trace import Trace

canary_app = typer.Typer(
    help="Send questions with known answers to a service on a schedule.", no_args_is_help=True
)

TOKEN_VARIABLE = "RAGMETER_CANARY_TOKEN"
ANSWER_SECONDS = 60.0  # time limit of an answer: as long as a person waits for one
FINISH_SECONDS = 15.0  # for traces that the agent has not accepted when the last answer came

SuiteFile = Annotated[Path, typer.Argument(metavar="SUITE", help="YAML, or JSON lines (.jsonl).")]
ServiceOption = Annotated[
    str | None, typer.Option("--service", help="The name of the service, in place of the suite's.")
]


def _load_suite(path: Path, service: str | None) -> CanarySuite:
    from ragmeter.canaries.suite import read_suite
    from ragmeter.canaries.verdicts import reject_idle_thresholds

    with options.exit_on_error(2):
        suite = read_suite(path, service)
        reject_idle_thresholds(suite, str(path))
    return suite


def _parse_seconds(name: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise exit_error(f"{name}: {error}", 2) from None
    if not seconds:
        raise exit_error(f"{name}: more than 0 is needed", 2)
    return seconds


def _read_secret(name: str, file: Path | None) -> str | None:
    """Read a secret from a file or the environment, since anybody can see a command line."""
    if file is None:
        return os.environ.get(name, "").strip() or None
    try:
        text = file.read_text("utf-8-sig").strip()
        text.encode("ascii")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "a token is ASCII text"
        raise exit_error(f"{file}: {why}", 2) from None
    return text or None


@canary_app.command("check")
def check(file: SuiteFile) -> None:
    """Check a suite and send nothing; the exit status is 2 if it has a mistake."""
    suite = _load_suite(file, None)
    required = sum(question.required for question in suite.questions)
    print_message(f"{suite.service}: {len(suite.questions)} questions, {required} of them required")


@canary_app.command("run")
def run(
    file: SuiteFile,
    endpoint: Annotated[str, typer.Option(help="URL of the service that answers questions.")],
    every: Annotated[
        str, typer.Option(help="Time from the start of a round to the start of the next.")
    ] = "15m",
    once: Annotated[
        bool, typer.Option("--once", help="Run one round; exit status 1 if a canary fails.")
    ] = False,
    to: Annotated[
        str | None, typer.Option(help="The agent's port for traces; none: as the settings say.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Append the traces to this file; without --to there is no agent."
        ),
    ] = None,
    service: ServiceOption = None,
    per_minute: Annotated[
        float, typer.Option(min=0.1, max=6000, help="The most questions a minute.")
    ] = 60,
    token_file: Annotated[
        Path | None, typer.Option(help=f"Bearer token for the service; or {TOKEN_VARIABLE}.")
    ] = None,
    gate: GateOption = None,
    junit: JunitOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Send each question of a suite to a service, and each answer with its reference to the agent.

    A question that fails is a trace with status error or timeout. Ctrl-C ends after what is under
    way. With --once the exit status is 0 if every required canary passes and its trace was handed
    over, 1 if not, and 130 if it was interrupted. With --gate the thresholds of a profile or of a
    rules file must hold as well. The judge and the model of the settings are asked where a
    threshold of the suite or a gate needs them, and the judge about questions without an answer.
    """
    from ragmeter.canaries.client import CanaryClient
    from ragmeter.canaries.delivery import TraceDelivery
    from ragmeter.canaries.runner import CanaryRunner, CanarySchedule
    from ragmeter.server.client import agent_client, agent_url

    settings = options.load_or_exit(config)
    suite = _load_suite(file, service)
    if gate and not once:
        raise exit_error("--gate: one round is checked, with --once", 2)
    wanted = gate_options(gate, junit, [file, *filter(None, [config])])
    base = (to or ("" if output else agent_url(settings.http, settings.http.otlp_port))).rstrip("/")
    seconds = None if once else _parse_seconds("--every", every)
    token = _read_secret(TOKEN_VARIABLE, token_file)
    options.check_url("--endpoint", endpoint)
    if base:
        options.check_url("--to", base)
    with options.exit_on_error():
        agent = agent_client(settings.http, base, FINISH_SECONDS, sending=True) if base else None
        client = CanaryClient(
            suite, endpoint, seconds=ANSWER_SECONDS, token=token, environ=os.environ
        )
        delivery = TraceDelivery(agent, base, file=output)
        scoring = CanaryScoring(settings, suite, wanted)
    runner = CanaryRunner(
        suite,
        client,
        delivery,
        CanarySchedule(seconds, per_minute),
        score=scoring.score,
        on_verdict=_print_verdict,
        on_round=partial(_print_summary, suite),
        measure=scoring.measure,
    )
    with options.exit_on_error():
        try:
            status = asyncio.run(
                _run_suite(
                    runner=runner,
                    client=client,
                    delivery=delivery,
                    scoring=scoring,
                    once=once,
                )
            )
        except OSError as error:  # of a file that traces or the gate are written to
            raise exit_error(f"{error.filename or output}: {error.strerror}", 1) from None
    raise typer.Exit(status)


class CanaryScoring:
    """The scores that the verdicts on canaries and the gate need.

    Thresholds on metrics of the reference cost nothing; for others the traces are scored as
    `ragmeter score` does, by the judge and the model of the settings. Without such thresholds a
    judge is asked only what the reference cannot say by itself: whether questions that can't be
    answered were declined, and whether the answer is a right one that has no keywords.
    """

    def __init__(self, settings: Settings, suite: CanarySuite, gate: GateOptions | None) -> None:
        from ragmeter.metrics.canary.scores import is_reference_metric
        from ragmeter.offline.report.run import ScoredRun
        from ragmeter.offline.scoring import OfflineScorer
        from ragmeter.scoring.slow_tiers import ConfiguredTiers

        expected = {*suite.expect, *(name for one in suite.questions for name in one.expect)}
        beyond = not all(map(is_reference_metric, expected))
        self._gate = gate
        self._run = ScoredRun(suite.name or suite.service)
        self._everything = bool(gate or beyond)
        self.plain = OfflineScorer(settings)
        if not self._everything:
            judge = settings.judge.model_copy(update={"metrics": ["answered"]})
            unused = settings.hhem.model_copy(update={"path": None})  # loading it takes seconds
            settings = settings.model_copy(update={"judge": judge, "hhem": unused})
        tiers = ConfiguredTiers(settings).scorers
        if self._everything:
            options.warn_unused_settings(settings, "canary run", options.OFFLINE_UNUSED)
        else:
            tiers = {name: tier for name, tier in tiers.items() if name == "judge"}
        self.scorer = OfflineScorer(settings, tiers)

    async def score(self, trace: Trace) -> Sequence[Score]:
        """Return the scores of a trace, and remember them for the gate."""
        reference = trace.reference
        judged = self._everything or (reference is not None and reference.answerable is False)
        scored = await (self.scorer if judged else self.plain).score(trace)
        if self._gate is not None:
            self._run.add(scored, None)
        return scored.results

    async def measure(self, trace: Trace) -> Trace:
        """Return the trace with what a judge says for its reference."""
        from ragmeter.core.tiers import ScoringCost

        cost = ScoringCost()
        trace = await self.scorer.measure(trace, cost)
        self.scorer.summary.judging.add_uses(cost.uses)
        return trace

    def check_gate(self) -> bool:
        """Print what the gate says of the round; False if it failed."""
        from ragmeter.offline.report.summary import build_report

        if self._gate is None:
            return True
        report = build_report([self._run], paired_by="trace_id")
        result = self._gate.run(report.columns[0])
        for line in result.lines():
            print_message(line)
        return result.passed


async def _run_suite(
    runner: CanaryRunner,
    client: CanaryClient,
    delivery: TraceDelivery,
    scoring: CanaryScoring,
    once: bool,
) -> int:
    """Run the suite as scheduled and return the exit status."""
    from ragmeter.core.process import SignalHandlers

    signals = SignalHandlers()
    delivery.start()
    stopping = asyncio.create_task(_stop_on_signal(signals, runner))
    try:
        async with client, scoring.scorer, scoring.plain:
            done = await runner.run()
    finally:
        stopping.cancel()
        delivered = await delivery.finish(FINISH_SECONDS)
    if once:
        _print_summary(runner.suite, done)
        for line in scoring.scorer.summary.judging.lines():
            print_message(line)
    if not delivered:
        print_message(f"{delivery.waiting} traces were not handed over and are lost")
    lost = delivery.dropped + delivery.refused
    if lost:
        print_message(f"{lost} traces were dropped or refused")
    if once and not done.complete:
        return 130
    held = not once or (scoring.check_gate() and done.passed)
    return 0 if held and delivered and not lost else 1


async def _stop_on_signal(signals: SignalHandlers, runner: CanaryRunner) -> None:
    await signals.stop.wait()
    print_message("stopping after what is under way; again to end at once")
    runner.stop()


def _print_verdict(verdict: CanaryVerdict) -> None:
    state = "passed" if verdict.passed else "FAILED" if verdict.required else "failed"
    note = "" if verdict.required else " (not required)"
    why = f": {'; '.join(verdict.failed)}" if verdict.failed else ""
    print_message(f"{state:6} {verdict.question}  {verdict.seconds:.2f} s{note}{why}")


def _print_summary(suite: CanarySuite, done: CanaryRound) -> None:
    from ragmeter.canaries.verdicts import describe_thresholds

    for line in describe_thresholds(suite, done.verdicts):
        print_message(f"expect {line}")
    passed = sum(verdict.passed for verdict in done.verdicts)
    left = done.questions - len(done.verdicts)
    print_message(
        f"{passed} of {done.questions} canaries passed"
        + (f", {left} were not asked" if left else "")
    )
