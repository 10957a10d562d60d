"""The commands of `ragmeter`."""

from __future__ import annotations

import gc
import os
import signal
import sys


def start() -> None:
    """Run the command line, with a clean end of `run` and `worker` from the first moment.

    Their modules take a second and more to import. A SIGTERM or SIGINT meanwhile ends the process
    with status 0, as one later does; before, nothing is opened that would have to be closed. Any
    other command that is interrupted while it is imported ends as a shell expects it, in silence.
    """
    words = [word for word in sys.argv[1:] if word[:1] != "-" and word not in ("text", "json")]
    serves = words[:1] in (["run"], ["worker"])
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(0 if serves else 130))
    if serves:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    gc.disable()  # nothing that is imported becomes garbage: a tenth of the time
    from ragmeter.cli.main import main

    if not serves:  # these import more, and end with `collect_rarely`
        gc.freeze()
        gc.enable()
        signal.signal(signal.SIGINT, interrupt)
    main()
