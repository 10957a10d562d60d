"""Command lines of ragmeter in texts, compared with the commands that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer
from ragmeter.cli.main import app

built_once = cache(typer.main.get_command)
"""typer's command of an application. To build it takes four times as long as most commands run."""


def unknown(words: list[str]) -> list[str]:
    """Words of a command line that are no command or option of ours; values are not looked at."""
    command: Any = built_once(app)
    rest = list(words)
    while commands := getattr(command, "commands", None):
        if rest[:1] in (["--version"], ["--help"], ["--install-completion"]):
            return []
        if rest[:1] == ["--log-format"]:
            del rest[:2]
        if not rest or rest[0] not in commands:
            return rest[:1]  # nothing more: a group is named as such
        command = commands[rest.pop(0)]
    options = {one for parameter in command.params for one in parameter.opts}
    return [
        word for word in rest if re.match("-[^0-9]", word) and word.partition("=")[0] not in options
    ]


OTHER_PROGRAMS = ("docker", "helm", "kubectl")  # to which it is a name, not a command


def commands_in(script: str) -> Iterator[list[str]]:
    """The words after `ragmeter` of each command in a shell script."""
    script = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\$ | #.*$|^#.*$", "", script))
    lexer = shlex.shlex(f"{script};", posix=True, punctuation_chars="|&;()<>\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    first = ""
    found: list[str] | None = None
    for word in lexer:
        if set(word) <= set("|&;()<>\n"):
            if found is not None:
                yield found
            first = ""
            found = None
        elif found is not None:
            found.append(word)
        else:
            first = first or word
            if word.rpartition("/")[2] == "ragmeter" and first not in OTHER_PROGRAMS:
                found = []
