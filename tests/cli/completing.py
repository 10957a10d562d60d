"""Complete `ragmeter ba` as a shell does: `python -m tests.cli.completing bash`."""

from __future__ import annotations

import os
import sys

from ragmeter.cli.main import main

if __name__ == "__main__":
    __package__ = ""  # the installed command, too, is named after its file alone
    os.environ |= {
        "COMP_WORDS": "ragmeter ba",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "ragmeter ba",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_RAGMETER_COMPLETE": f"complete_{sys.argv[1]}",
    }
    sys.argv = ["ragmeter"]
    main()
