"""The disk of a chaos run: it can be full, and it can refuse to write.

As root it is a small file system in memory, which is full where a file takes all that is left.
Without root a full disk is as one that refuses: the agent's limit on the size of files is set to
nothing, and every write beyond it fails (`EFBIG`; SQLite says "disk I/O error").
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Disk", "disk"]

MEGABYTES = 160
"""The state of an hour at 20 traces a second takes a quarter of it, a journal at most 64 MB."""

FILLER = "filler"


class Disk:
    """Of the state file, at `folder`."""

    def __init__(self, folder: Path, own: bool) -> None:
        self.folder = folder
        self.own = own
        self.full = False
        self.refusing = False

    @property
    def faulty(self) -> bool:
        return self.full or self.refusing

    def fill(self) -> None:
        self.full = True
        if not self.own:
            return
        with (self.folder / FILLER).open("ab", buffering=0) as file:
            for size in (2**20, 2**14, 2**12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        self.full = False
        (self.folder / FILLER).unlink(missing_ok=True)

    def limit(self, process: int) -> None:
        """Let a process feel what the disk refuses now; once more after each change."""
        bad = self.refusing or (self.full and not self.own)
        _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0 if bad else hard, hard))

    @property
    def left(self) -> int:
        """Bytes."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


@contextmanager
def disk(folder: Path) -> Iterator[Disk]:
    """One of its own where this process may mount, else the folder itself."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=700", "tmpfs", str(folder)]
    try:
        own = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES):
            raise
        own = False
    try:
        yield Disk(folder, own)
    finally:
        if own:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
