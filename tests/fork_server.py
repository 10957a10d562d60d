"""Start Python processes of tests by forking one that has imported `ragmeter`: a tenth of the cost.

Such a process is like a started one in all that is not about the interpreter: it runs a module as
the main program of a process of its own, with arguments, environment, folder and streams as given,
takes signals, and ends as the interpreter ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from ragmeter.cli.main import app

from tests.command_lines import built_once

ROOT = Path(__file__).parents[1]

# What most commands load, some of it when they first need it; nothing of it starts a thread.
PRELOADED = (
    "anyio._backends._asyncio",
    "certifi",
    "encodings.ascii",
    "httpcore",
    "httpx",
    "ragmeter.app.embedded_agent",
    "ragmeter.app.exports",
    "ragmeter.offline.backtest",
    "ragmeter.offline.report.command",
    "ragmeter.offline.score_file",
    "rich.traceback",
    "typer._click.decorators",
    "typer.rich_utils",
)

_PR_SET_CHILD_SUBREAPER = 36  # of Linux' prctl
_MAX_CALL = 1 << 17  # bytes of arguments and environment; a socket's buffer holds more


class _ForkServer:
    """A process that has imported the command, and forks itself when it is asked to."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=[theirs.fileno()],
            )

    def fork(self, call: list[Any], streams: list[int]) -> int:
        """Run a program in a new process, which is a child of the calling one.

        Args:
            call: Arguments of the interpreter, folder and environment.
            streams: Standard input, output and error.

        Returns:
            The process id.
        """
        # The server's own child ends at once, so that we are the next of kin of its child.
        _set_subreaper(True)
        try:
            socket.send_fds(self._socket, [json.dumps(call).encode()], streams)
            return int(self._socket.recv(64))
        finally:
            _set_subreaper(False)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class _Forks:
    """Decides which processes are forked, and forks them.

    There are two servers in turns: a process and its successor have different hash seeds, as they
    do in life.
    """

    def __init__(self) -> None:
        self._environment = _read_at_start(os.environ)
        self._servers: list[_ForkServer] = []
        self._turns: Iterator[_ForkServer] = iter(())
        self._lock = threading.Lock()

    def is_alike(self, arguments: Any, environment: Mapping[str, str]) -> bool:
        """Whether a forked process would do the same as a started one."""
        return (
            isinstance(arguments, list)
            and arguments[0] == sys.executable
            and arguments[1] == "-m"
            and (arguments[2] == "ragmeter" or arguments[2].startswith(("ragmeter.", "tests.")))
            and environment.get("PYTHONPATH", str(ROOT)).split(os.pathsep)[0] == str(ROOT)
            and _read_at_start(environment) == self._environment
        )

    def fork(self, call: list[Any], streams: list[int]) -> int:
        with self._lock:
            if not self._servers:
                self._servers = [_ForkServer(), _ForkServer()]
                self._turns = cycle(self._servers)
            return next(self._turns).fork(call, streams)

    def close(self) -> None:
        for server in self._servers:
            server.close()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """What the interpreter and libraries may have read before a program begins.

    What loads the embedded model leaves `ORT_` in the environment.
    """
    ours = ("RAGMETER_", "PYTEST_", "PYTHONPATH", "ORT_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Let `subprocess` fork the Python processes for which that makes no difference."""
    forks = _Forks()

    class ForkedPopen(subprocess.Popen[Any]):
        def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
            # in the order of the method's parameters; ends of pipes are theirs or ours
            preexec, close_fds, pass_fds, folder, env, _, _, shell = rest[:8]
            ends, others = rest[8:14], rest[14:]
            environment = os.environ if env is None else env
            plain = close_fds and not (preexec or pass_fds or shell) and others == _PLAIN
            if executable is not None or not plain or not forks.is_alike(args, environment):
                super()._execute_child(args, executable, *rest)  # type: ignore[misc]
                return
            theirs = (ends[0], ends[3], ends[5])
            streams = [own if end == -1 else end for own, end in enumerate(theirs)]
            call = [[*map(str, args[1:])], str(Path(folder or "").absolute()), {**environment}]
            self.pid = forks.fork(call, streams)
            self._child_created = True
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    if sys.platform != "linux":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkedPopen)
        yield
    forks.close()


# restore_signals, group, groups, user, umask, start_new_session, process_group
_PLAIN = (True, None, None, None, -1, False, -1)


def _set_subreaper(on: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve(requests: socket.socket) -> list[str]:
    """Fork at each request; return in the forked processes alone, with their arguments."""
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _MAX_CALL, 3)
        if not message:
            sys.exit()
        read, write = os.pipe()
        if child := os.fork():
            os.waitpid(child, 0)
            requests.send(os.read(read, 64))
            for end in (read, write, *streams):
                os.close(end)
        elif grandchild := os.fork():
            os.write(write, str(grandchild).encode())
            os._exit(0)
        else:
            requests.close()
            arguments: list[str]
            arguments, folder, environment = json.loads(message)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for end in (read, write, *streams):
                os.close(end)
            _open_streams()
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[0] = folder
            sys.path[2:2] = environment.get("PYTHONPATH", "").split(os.pathsep)[1:]
            return arguments


def _open_streams() -> None:
    """Open the standard streams as the interpreter does when it starts."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        stream = open(  # noqa: SIM115
            number,
            old.mode,
            buffering=1 if name == "stderr" or os.isatty(number) else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(arguments: list[str]) -> None:
    _, module, *sys.argv[1:] = arguments
    if module == "ragmeter":  # the package itself stays imported
        module = "ragmeter.__main__"
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end(status: int) -> NoReturn:
    """End as the interpreter does, but leave its modules as they are: to take them apart touches
    all memory that is shared with the server, and takes as long as most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(Exception):  # of a stream whose reader has gone it must tell itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    typer.main.get_command = built_once
    COMMANDS: Any = built_once(app)
    list(COMMANDS.commands.values())  # each is built when it is asked for
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt):
        CALL = _serve(socket.socket(fileno=int(sys.argv[1])))
    STATUS = 0
    try:
        _run(CALL)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        STATUS = end.code or 0
    _end(STATUS)
