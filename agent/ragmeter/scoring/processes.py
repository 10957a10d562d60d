"""Score traces in other processes, on the cores that the interpreter's lock leaves idle.

`ScorerPool` sends slices of trace bodies to processes and returns their scores. Scores of one trace
depend on no other trace, so the number of processes changes no result, and a process that is killed
costs nothing but time: its traces are scored again. `concurrent.futures.ProcessPoolExecutor` is not
used, since one killed process breaks the whole pool, a hanging one cannot be ended, and processes
outlive a killed parent (https://github.com/python/cpython/issues/111873).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import logging
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, NamedTuple

from ragmeter.config.scoring import SamplingSettings, ScorerSettings
from ragmeter.config.settings import Settings
from ragmeter.core.errors import Unavailable
from ragmeter.core.process import memory_limit, usable_cores
from ragmeter.core.score import Score
from ragmeter.core.tiers import MetricScorer
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.metrics.costs import PriceTable, list_prices
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import Sampler, StratumClassifier
from ragmeter.scoring.scorer import Scorer, TraceScores

log = logging.getLogger(__name__)

# A process has two parts: it scores one while the other is on its way.
_UNDER_WAY = 2

_SLICE = 32  # traces that a process scores at a time: two messages for 15 ms of work

# Seconds a process may take for one trace. The scorers bound their work to less than a second of
# CPU, so this is for a defect, in a user's own metric perhaps, and for a stopped process.
TRACE_SECONDS = 30.0

# Deaths of processes on the same trace after which it is given up.
_MAX_DEATHS = 2

_START_SECONDS = 60.0  # to import everything on a busy machine; one second on an idle one
_MAX_PAUSE = 60.0  # seconds between two attempts to start a process
_POLL_SECONDS = 1.0  # between two looks at what a process has done

# Seconds after which the thread that receives may have the interpreter's lock: while it waits for
# it, the parent's thread is blocked in the middle of a message.
_SWITCH_SECONDS = 0.0005

_MAX_PROCESSES = 4  # of the default: by then the aggregate half is as busy as they are
# Shares of a memory limit, see `default_processes`.
_AGENT_BYTES = 256 * 2**20
_PROCESS_BYTES = 96 * 2**20

_PR_SET_PDEATHSIG = 1

# The first statements of a process. The module search path is the parent's, and the parent's main
# module is not imported: `ragmeter.cli` takes half a second and 30 MB.
_BOOTSTRAP = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ragmeter.scoring.processes import serve
serve(*map(int, sys.argv[2:]))
"""


@dataclass(frozen=True, slots=True)
class SamplingTerms:
    """The terms by which the built-in tier is drawn: see `Sampler` and `StratumClassifier`."""

    settings: SamplingSettings
    control: SamplingControl = field(default_factory=SamplingControl)
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """What a process computes of each trace.

    Args:
        builtin: Whether to compute the built-in quality metrics.
        ks: The cut-offs of the retrieval metrics of canaries.
        segments: The tags that windows distinguish.
        terms: The first terms of sampling.
        prices: By which costs are estimated.
    """

    builtin: bool
    ks: tuple[int, ...]
    segments: tuple[str, ...]
    terms: SamplingTerms
    prices: PriceTable = field(default_factory=list_prices)

    @classmethod
    def of(cls, settings: Settings) -> ScoringPlan:
        """Return the plan of an agent."""
        return cls(
            settings.builtin_scorers,
            tuple(settings.judge.k),
            tuple(settings.segments),
            SamplingTerms(settings.sampling),
            list_prices().with_own(settings.costs.as_pairs()),
        )


@dataclass(frozen=True, slots=True)
class Unscorable:
    """In place of scores: why a trace cannot be scored; its processes have died, perhaps."""

    why: str


ScoredBody = TraceScores | DecodeFailure | Unscorable


_Reducer = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]


def _reducer(kind: type[Any]) -> _Reducer:
    values = attrgetter(*(one.name for one in fields(kind) if one.name != "prepare"))
    return lambda item: (kind, values(item))


# How scores are pickled: by a call of their class. As dataclasses with slots they would take three
# times as long in the aggregating process, which has the least time: 28 us a trace in place of 11.
_REDUCERS: Mapping[type, _Reducer] = {kind: _reducer(kind) for kind in (TraceScores, Score)}


def dump_scores(results: Sequence[ScoredBody]) -> bytes:
    """Return what `pickle.loads` turns into equal results, but for `TraceScores.prepare`."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(results)
    return file.getvalue()


class BodyScorer:
    """Scores bodies of traces by a plan, as a process does.

    Attributes:
        terms: The last terms of sampling.
    """

    def __init__(self, plan: ScoringPlan) -> None:
        self._plan = plan
        self.terms = plan.terms
        self._sampler = Sampler(plan.terms.settings)
        self._strata = StratumClassifier(plan.segments)
        self._scorer = Scorer(plan.builtin, sampler=self._sampler, strata=self._strata, ks=plan.ks)
        self._scorer.prices = plan.prices

    @property
    def pairs(self) -> list[MetricScorer]:
        """The pairs of all results, with those of canaries; users' own metrics may change them."""
        return [*self._scorer.pairs, *self._scorer.reference_pairs]

    def score_all(self, bodies: Sequence[bytes], terms: SamplingTerms) -> Iterator[ScoredBody]:
        """Score bodies; traces that `terms` do not draw get no built-in scores."""
        if terms is not self.terms:
            self.terms = terms
            self._apply(terms)
        for body in bodies:
            try:
                yield self._score(body)
            except MemoryError:  # no fault of the trace
                raise
            except Exception as error:
                log.exception("a trace cannot be scored")
                yield Unscorable(repr(error)[:200])

    def _apply(self, terms: SamplingTerms) -> None:
        self._sampler.update(terms.settings)
        self._sampler.builtin_scale = terms.scale
        self._strata.apply_control(terms.control)

    def _score(self, body: bytes) -> TraceScores | DecodeFailure:
        item = decode_trace(body, len(body))
        if isinstance(item, DecodeFailure):
            return item
        trace = item.trace
        scorer = self._scorer
        scores = scorer.score_alone(trace)
        if not trace.canary and scorer.draw_builtin(scores)[0]:
            scores.builtin = scorer.score_builtin(scores.prepare())
        return scores


def serve(connection_fd: int, begun_fd: int, parent: int) -> None:
    """Score slices that come over a connection until it ends: the main function of a process."""
    # systemd signals the whole control group: while the agent drains its queue, it needs this
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):  # elsewhere the connection's end will do
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    os.dup2(2, 1)  # what users' metrics print is no output of the agent
    logging.basicConfig(level=logging.INFO, format="scorer process: %(levelname)s %(message)s")
    sys.setswitchinterval(_SWITCH_SECONDS)
    os.set_blocking(begun_fd, False)
    connection = Connection(connection_fd)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive_all, args=(connection, inbox), daemon=True).start()
    scorer = BodyScorer(pickle.loads(inbox.get()))
    connection.send_bytes(pickle.dumps(scorer.pairs))
    while True:
        bodies, terms = pickle.loads(inbox.get())
        results = []
        scores = scorer.score_all(bodies, terms or scorer.terms)
        for _ in bodies:
            with contextlib.suppress(BlockingIOError):  # nobody has read 65,536 of them
                os.write(begun_fd, b".")
            results.append(next(scores))
        connection.send_bytes(dump_scores(results))


def _receive_all(connection: Connection, inbox: queue.SimpleQueue[bytes]) -> None:
    """Receive in a thread of its own: the parent never waits until a slice is scored."""
    try:
        while True:
            inbox.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # the parent has ended


@dataclass(eq=False)
class _Submission:
    """Bodies that were submitted together; `deaths` counts those of processes by index."""

    bodies: Sequence[bytes]
    terms: SamplingTerms
    results: list[ScoredBody | None]
    left: int
    future: Future[list[ScoredBody]] = field(default_factory=Future)
    deaths: dict[int, int] = field(default_factory=dict)

    def finish(self, start: int, results: Sequence[ScoredBody]) -> None:
        """Set the results from index `start` on."""
        self.results[start : start + len(results)] = results
        self.left -= len(results)
        if not self.left and self.future.set_running_or_notify_cancel():  # else nobody waits for it
            self.future.set_result([result for result in self.results if result is not None])


class _Slice(NamedTuple):
    """The bodies of a submission that a process scores at once."""

    whole: _Submission
    start: int
    stop: int

    def split(self, at: int) -> list[_Slice]:
        """Return what to score again after a process has ended on the trace at index `at`."""
        whole, start, stop = self
        deaths = whole.deaths[at] = whole.deaths.get(at, 0) + 1
        again = [(start, at), (at, at + 1), (at + 1, stop)]
        if deaths >= _MAX_DEATHS:
            del again[1]
            whole.finish(at, [Unscorable(f"{deaths} processes ended while they scored it")])
        return [_Slice(whole, first, end) for first, end in again if first < end]


class _ProcessEnded(Unavailable):
    """A process has ended, or has to be ended; the text says why."""


class _Process:
    """A process that scores slices, as its parent sees it.

    Args:
        terms: The terms that it begins with.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, terms: SamplingTerms) -> None:
        ours, theirs = socket.socketpair()
        self._begun_fd, begun = os.pipe()
        fds = (theirs.fileno(), begun)
        arguments = [json.dumps(sys.path), *map(str, (*fds, os.getpid()))]
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,  # Ctrl-C is for the agent
                # threads of a numeric library would take the cores of the other processes
                env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ},
            )
        except BaseException:
            ours.close()
            os.close(self._begun_fd)
            raise
        finally:
            theirs.close()
            os.close(begun)
        self._connection = Connection(ours.detach())
        os.set_blocking(self._begun_fd, False)
        self._begun = 0
        self._terms = terms

    def prepare(self, plan: ScoringPlan) -> None:
        """Send the plan; the process answers with its pairs when it is ready."""
        self._connection.send_bytes(pickle.dumps(plan))

    def send(self, part: _Slice) -> None:
        """Send a part, with its terms if the part before had others."""
        terms = part.whole.terms
        new = None if terms is self._terms else terms
        self._terms = terms
        bodies = part.whole.bodies[part.start : part.stop]
        self._connection.send_bytes(pickle.dumps((bodies, new), pickle.HIGHEST_PROTOCOL))

    def receive(self, seconds: float) -> Any:
        """Return the next message, None if none comes in time.

        Raises:
            _ProcessEnded: The process has ended.
        """
        try:
            if self._connection.poll(seconds):
                return pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._popen.wait(_POLL_SECONDS)
                why = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                raise _ProcessEnded(why) from None
            raise _ProcessEnded("it closed its connection") from None
        return None

    def count_begun(self) -> int:
        """Return the number of traces that it has begun to score."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._begun_fd, 65_536):
                self._begun += len(data)
        return self._begun

    def kill(self) -> None:
        """End the process at once: it holds nothing that is not here as well."""
        self._popen.kill()

    def close(self) -> None:
        """End the process and wait for its end."""
        self._popen.kill()
        self._popen.wait()
        self._connection.close()
        os.close(self._begun_fd)


class ScorerPool:
    """Processes that score slices of traces.

    A process that dies, or is busy with one trace for `trace_seconds`, is replaced, and its traces
    are scored again; a trace on which that happens twice is `Unscorable`. While no process can be
    started, threads of this process score. The processes end with this one, however it ends.

    Args:
        plan: What is computed of a trace.
        processes: How many; at least one.
        trace_seconds: Seconds that a trace may take.

    Attributes:
        restarts: How many processes were replaced.
    """

    def __init__(
        self, plan: ScoringPlan, processes: int, *, trace_seconds: float = TRACE_SECONDS
    ) -> None:
        self._plan = plan
        self._pairs = BodyScorer(plan).pairs
        self._trace_seconds = trace_seconds
        self._parts: deque[_Slice] = deque()
        self._changed = threading.Condition()  # held while a slice or `_parts` is changed
        self._closing = threading.Event()
        self._ready: set[_Process] = set()
        self.restarts = self._taken_restarts = 0
        # Linux kills a process when the thread ends that has started it: each has one to itself
        self._threads = [
            threading.Thread(target=self._run, name=f"ragmeter-scorers-{n}", daemon=True)
            for n in range(processes)
        ]

    def start(self) -> None:
        """Start the processes; they are ready in a second or so."""
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> int:
        """The number of processes that are ready."""
        return len(self._ready)

    def take_restarts(self) -> int:
        """Return how many processes were replaced since the last call."""
        before, self._taken_restarts = self._taken_restarts, self.restarts
        return self._taken_restarts - before

    def submit(self, bodies: Sequence[bytes], terms: SamplingTerms) -> Future[list[ScoredBody]]:
        """Score traces in slices of `_SLICE`, by as many processes as are free.

        Returns:
            A future of one result for each body, in order.
        """
        number = len(bodies)
        whole = _Submission(bodies, terms, [None] * number, number)
        with self._changed:
            if not number:
                whole.finish(0, ())
            for start in range(0, number, _SLICE):
                self._parts.append(_Slice(whole, start, min(start + _SLICE, number)))
                self._changed.notify()
        return whole.future

    def close(self) -> None:
        """End the processes; slices that are not done are cancelled."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        for process in list(self._ready):
            process.kill()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for part in self._parts:
            part.whole.future.cancel()

    def _take(self, seconds: float, here: bool = False) -> _Slice | None:
        """Return the next part, None if there is none in time.

        Args:
            seconds: How long to wait for it.
            here: Whether this process will score it: it leaves what other processes died on.
        """
        with self._changed:
            for wait in (seconds, 0.0):
                for part in self._parts:
                    if not (here and part.whole.deaths):
                        self._parts.remove(part)
                        return part
                if wait and not self._closing.is_set():
                    self._changed.wait(wait)
        return None

    def _finish(self, part: _Slice, results: Sequence[ScoredBody]) -> None:
        with self._changed:
            part.whole.finish(part.start, results)

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            process = None
            try:
                process = _Process(self._plan.terms)
                self._await_ready(process)
                failures = 0
                self._serve(process)
            except (_ProcessEnded, OSError) as error:
                if self._closing.is_set():
                    return
                if process in self._ready:
                    self.restarts += 1
                    log.warning("a scorer process has ended (%s) and is replaced", error)
                    continue
                failures += 1
                pause = min(_MAX_PAUSE, 2.0**failures)
                log.error(
                    "a scorer process cannot be started: %s; next try in %.0f s", error, pause
                )
                self._score_here(pause)
            finally:
                if process is not None:
                    self._ready.discard(process)
                    process.close()

    def _await_ready(self, process: _Process) -> None:
        process.prepare(self._plan)
        end = time.monotonic() + _START_SECONDS
        while (pairs := process.receive(_POLL_SECONDS / 10)) is None:
            if self._closing.is_set() or time.monotonic() > end:
                raise _ProcessEnded(f"it is not ready after {_START_SECONDS:.0f} s")
        if pairs != self._pairs:
            raise _ProcessEnded("it has other metrics; restart the agent if packages have changed")
        self._ready.add(process)

    def _serve(self, process: _Process) -> None:
        """Have a process score until this pool closes.

        Raises:
            _ProcessEnded, OSError: The process has ended, or works on one trace for too long.
        """
        under_way: deque[_Slice] = deque()
        done = begun = 0  # traces whose scores have come, and that were begun
        since = time.monotonic()
        try:
            while not self._closing.is_set():
                while len(under_way) < _UNDER_WAY:
                    part = self._take(0.0 if under_way else _POLL_SECONDS)
                    if part is None:
                        break
                    under_way.append(part)
                    process.send(part)
                    since = time.monotonic() if len(under_way) == 1 else since
                results = process.receive(_POLL_SECONDS if under_way else 0.0)
                if results is not None:
                    self._finish(under_way.popleft(), results)
                    done += len(results)
                    since = time.monotonic()
                elif (now_begun := process.count_begun()) != begun:
                    begun = now_begun
                    since = time.monotonic()
                elif under_way and time.monotonic() - since > self._trace_seconds:
                    raise _ProcessEnded(f"busy with one trace for {self._trace_seconds:.0f} s")
        finally:
            at = -1 if self._closing.is_set() else process.count_begun() - done - 1
            self._put_back(under_way, at)

    def _put_back(self, parts: Iterable[_Slice], at: int) -> None:
        """Have parts scored again; `at` is the index in them of the trace to blame, -1 for none."""
        again: list[_Slice] = []
        with self._changed:
            for part in parts:
                size = part.stop - part.start
                again += part.split(part.start + at) if 0 <= at < size else [part]
                at -= size
            self._parts.extendleft(reversed(again))  # they are the oldest
            self._changed.notify(len(again))

    def _score_here(self, seconds: float) -> None:
        scorer = BodyScorer(self._plan)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._closing.is_set():
            part = self._take(min(left, _POLL_SECONDS), here=True)
            if part is not None:
                bodies = part.whole.bodies[part.start : part.stop]
                self._finish(part, list(scorer.score_all(bodies, part.whole.terms)))


def with_processes(settings: Settings, *, spare: int = 1) -> Settings:
    """Return the settings with the number of scorer processes that this machine allows."""
    if settings.scorers.processes is not None:
        return settings
    processes = default_processes(usable_cores(), memory_limit(), spare)
    return settings.model_copy(update={"scorers": ScorerSettings(processes=processes)})


def default_processes(cores: float, memory: float, spare: int = 1) -> int:
    """Return how many processes an agent starts unless it is told.

    Args:
        cores: What `usable_cores` returns. Below two, the agent scores by itself.
        memory: What `memory_limit` returns. The agent keeps 256 MiB of it, and a process gets 96.
        spare: Cores that are left to the agent itself.
    """
    room = (memory - _AGENT_BYTES) / _PROCESS_BYTES
    return int(max(0.0, min(cores - spare, room, _MAX_PROCESSES))) if cores >= 2 else 0
