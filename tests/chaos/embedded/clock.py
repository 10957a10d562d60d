"""`ragmeter` under a clock that can be set: `python -m tests.chaos.embedded.clock FILE run -c ...`.

Whatever reads the wall clock in the agent does so by `time.time`, which here adds the seconds that
FILE holds at the moment. libfaketime was tried and is no judge of the agent: a clock that is set
back makes `time.sleep` itself fail (EINVAL), which no real clock does.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

__all__ = ["Clock", "shift"]

FORM = "d"


class Clock:
    """Sets the clock of the agents that were started with its file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0.0
        path.write_bytes(struct.pack(FORM, 0.0))

    def jump(self, offset: float) -> None:
        """From now on the agents' clocks are so many seconds ahead."""
        self.offset = offset
        with self.path.open("r+b") as file:
            file.write(struct.pack(FORM, offset))


def shift(path: Path) -> None:
    """Replace `time.time` in this process."""
    real = time.time
    with path.open("rb") as file:
        offset = mmap.mmap(file.fileno(), struct.calcsize(FORM), access=mmap.ACCESS_READ)
    time.time = lambda: real() + struct.unpack(FORM, offset[:])[0]


def main() -> None:
    shift(Path(sys.argv.pop(1)))
    from ragmeter.cli.main import (
        main as ragmeter,  # only now: much of it takes `time.time` as a default
    )

    ragmeter()


if __name__ == "__main__":
    main()
