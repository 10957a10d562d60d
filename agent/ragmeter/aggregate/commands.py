"""Commands to a running agent or worker: how long they may take, and what they may ask for."""

from __future__ import annotations

from ragmeter.core.errors import UsageError

# Seconds until a command that was not begun is given up: a batch takes well under one. The commit
# of one that was begun has as much again; the disk is tried every five.
COMMAND_PATIENCE = 30.0


class UnknownService(UsageError):
    """There is no service of this name."""
