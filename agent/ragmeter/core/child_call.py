"""Call a function in a process of its own, which gives its memory back when it ends.

Parsing a large body takes ten times its size in small objects, and the interpreter keeps much of
that for ever; while a parser written in C works, no other thread of its process does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from ragmeter.core.errors import Unavailable

T = TypeVar("T")

# Of a result at a time: to unpickle so many takes a millisecond; then other threads may run.
_CHUNK = 500
_NICENESS = 5  # added to that of the process: small requests go first

# The module search path is the parent's, and the parent's main module is not imported.
_BOOTSTRAP = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ragmeter.core.child_call import serve
serve()
"""

# Parameters of glibc's `mallopt`. An arena for each of a dozen threads keeps what was freed in it.
_M_ARENA_MAX = -8
_ARENAS = 2


class ChildCallFailed(Unavailable):
    """The process was killed or ended without a result."""

    retry_after = 5  # what ends a process, mostly memory, seldom recovers at once


def call_in_child(
    function: Callable[..., Iterable[T]], *arguments: Any, seconds: float = 60.0
) -> list[T]:
    """Return the items that a function of a module yields, called in a new process.

    It takes a third of a second to start. Exceptions of the function are raised here.

    Args:
        function: Found by the name of its module, which should import little.
        arguments: Values that can be pickled.
        seconds: After which the process is killed.

    Raises:
        ChildCallFailed: The process did not end well.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _BOOTSTRAP, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the agent
    )
    if process.stdin is None:
        raise RuntimeError("stdin is missing")
    if process.stdout is None:
        raise RuntimeError("stdout is missing")
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    items: list[T] = []
    try:
        with process.stdin:
            pickle.dump((function, arguments), process.stdin, pickle.HIGHEST_PROTOCOL)
        while isinstance(chunk := pickle.load(process.stdout), list):
            items += chunk
    except (EOFError, OSError, pickle.UnpicklingError) as error:
        raise ChildCallFailed(f"{function.__name__} did not end within bounds") from error
    finally:
        timer.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
    try:
        if isinstance(chunk, Exception):
            raise chunk
        return items
    finally:
        # An exception that its own frame holds is freed, with the arguments, by the garbage
        # collector alone, which may be minutes away.
        del chunk


def serve() -> None:
    """Answer the call of the parent: the main function of the process."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # nothing else is written between the answers
        os.nice(_NICENESS)
        function, arguments = pickle.load(sys.stdin.buffer)
        end: Exception | None = None
        try:
            items = iter(function(*arguments))
            while chunk := list(islice(items, _CHUNK)):
                pickle.dump(chunk, out, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            end = error
        pickle.dump(end, out, pickle.HIGHEST_PROTOCOL)


def limit_arenas() -> None:
    """Bound the arenas of glibc's allocator; call it before threads start."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def trim_memory() -> None:
    """Give freed memory back to the system, where the allocator is glibc's."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
