"""Open, lock and quarantine the SQLite state file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from importlib import resources
from itertools import chain, count
from pathlib import Path
from typing import IO

from ragmeter.core.errors import StateError

APPLICATION_ID = 0x5241474D  # "RAGM": tells our file from another program's database
SCHEMA_VERSION = 1

# SQLite's codes for a file that may be sound but cannot be read or written now.
_DISK_ERRORS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def is_disk_error(error: Exception) -> bool:
    """Return whether another try may succeed, so that the file must stay where it is."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DISK_ERRORS  # higher bits refine the code


def describe_disk_error(path: Path, error: OSError | sqlite3.OperationalError) -> str:
    """Say in a sentence why a state file cannot be used, and which setting names it."""
    if isinstance(error, OSError):
        return f"{path}: {error.strerror}; state.path names a file in a folder that can be written"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return f"{path} cannot be written ({error}); state.path names a file that can"
    return f"{path}: {error} (state.path)"


def _check_kind(path: Path) -> None:
    if path.is_dir():
        raise StateError(f"{path} is a folder; state.path names a file")
    if path.exists() and not path.is_file():
        raise StateError(
            f"{path} is a device or the like; state.path names a file, and the state needs one: "
            "without it nothing that is accepted outlives a restart"
        )


def lock_state_file(path: Path) -> IO[str]:
    """Lock a state file until the returned file is closed.

    Raises:
        StateError: Another process holds the lock, or there is something else than a file.
        OSError: The lock cannot be made beside the file.
    """
    _check_kind(path)
    handle = Path(f"{path}.lock").open("a+", encoding="ascii")  # noqa: SIM115 - held
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        owner = handle.read(20).strip()
        handle.close()
        raise StateError(
            f"{path} is in use by another ragmeter (process {owner}); give each its own state.path"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def quarantine_state_file(path: Path, reason: str) -> str:
    """Move a corrupt state file and its journal aside; return a text that says so."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    first = path.with_name(f"{path.name}.corrupt-{stamp}")
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    target = next(one for one in chain([first], others) if not one.exists())
    for file, suffix in _files(path):
        if file.exists():
            file.rename(f"{target}{suffix}")
    return (
        f"the state file {path} is corrupt ({reason}). It was moved to {target} and kept; "
        "ragmeter starts with an empty state. Traces that were accepted but not yet counted are "
        "in the moved file; `sqlite3 FILE .recover` may bring them back."
    )


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA temp_store=MEMORY")
        # rows of the queue live for a second: with SQLite's 4 MB of WAL nearly every one of their
        # pages is copied to the file, with 16 MB one in three
        connection.execute("PRAGMA wal_autocheckpoint=4000")
        # a commit of 512 traces with their rows of the queue: in 2 MB, pages have to be read again
        connection.execute(f"PRAGMA cache_size=-{8 * 2**10}")
        # a WAL that has grown in a burst is cut back: the disk is the application's too
        connection.execute(f"PRAGMA journal_size_limit={64 * 2**20}")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_state(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = _connect(path, synchronous)
    try:
        check = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if check != "ok":
            raise sqlite3.DatabaseError(check)
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not empty and owner != APPLICATION_ID:
            raise StateError(f"{path} is a database of another program; state.path must be ours")
        if empty:
            schema = (resources.files(__package__) / "schema.sql").read_text()
            connection.executescript(
                f"BEGIN; {schema} PRAGMA application_id={APPLICATION_ID};"
                f" PRAGMA user_version={SCHEMA_VERSION}; COMMIT;"
            )
        elif version != SCHEMA_VERSION:
            raise StateError(
                f"{path} has state version {version}; this ragmeter reads version {SCHEMA_VERSION}"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def open_state(
    path: Path, synchronous: str, warn: Callable[[str], None]
) -> tuple[sqlite3.Connection, bool]:
    """Open and check a state file; a corrupt one is moved aside.

    Returns:
        A connection in autocommit mode, and whether a corrupt file was moved aside.

    Raises:
        StateError: The file cannot be used and must not be touched.
    """
    _check_kind(path)
    try:
        return _check_state(path, synchronous), False
    except sqlite3.OperationalError as error:
        raise StateError(describe_disk_error(path, error)) from None
    except sqlite3.DatabaseError as error:
        warn(quarantine_state_file(path, str(error)))
        return _check_state(path, synchronous), True


def remove_state_file(path: Path) -> None:
    """Delete a state file.

    Raises:
        StateError: Another process uses it, or it is no state file and not ours to delete.
    """
    path = Path(os.path.realpath(path))
    _check_kind(path)
    if path.exists():
        with lock_state_file(path):
            if not _is_ours(path):
                raise StateError(
                    f"{path} is no state file, so it is not deleted; state.path names another file"
                )
            for file, _ in _files(path):
                file.unlink(missing_ok=True)


def _is_ours(path: Path) -> bool:
    """Return whether a file is a state file, or empty; of a broken one the header tells.

    A header of SQLite has the application's number at byte 68 (https://sqlite.org/fileformat.html);
    that of a state file may still stand in its journal.
    """
    with path.open("rb") as file:
        header = file.read(100)
    if not header.startswith(b"SQLite format 3\0"):
        return not header
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            owner = connection.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.DatabaseError:
        owner = int.from_bytes(header[68:72], "big")
    return bool(owner == APPLICATION_ID)


def _files(path: Path) -> list[tuple[Path, str]]:
    return [(Path(f"{path}{suffix}"), suffix) for suffix in ("", "-wal", "-shm")]
