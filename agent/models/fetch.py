"""Download of the published model: two pinned files, checked by size and hash before they count."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from agent.models.errors import ModelError
from agent.models.manifest import sha256_of
from agent.models.published import FILES, PublishedFile

__all__ = ["HUB", "by_hand", "fetch"]

HUB = "https://huggingface.co"
SECONDS = 30.0  # without a byte: then there is no network worth waiting for
SPARE = 16 << 20  # bytes left free on the disk


def by_hand(out: Path, base_url: str = HUB, files: Sequence[PublishedFile] = FILES) -> str:
    """What to do where this machine reaches no hub."""
    lines = [f"By hand: on a machine with a network download these, and put both into {out}:"]
    for file in files:
        lines += [
            f"  {base_url}/{file.path}",
            f"    as {file.name}, {file.size:,} bytes, sha256 {file.sha256}",
        ]
    lines.append(f"Then: ragmeter model convert {out}")
    return "\n".join(lines)


def _download(url: str, file: PublishedFile, target: Path, say: Callable[[str], None]) -> None:
    digest, done, shown = hashlib.sha256(), 0, 0
    with (
        httpx.Client(follow_redirects=True, timeout=SECONDS) as client,
        client.stream("GET", url) as reply,
    ):
        reply.raise_for_status()
        with target.open("wb") as out:
            for chunk in reply.iter_bytes(1 << 20):
                done += len(chunk)
                if done > file.size:
                    raise ModelError(f"{url} is longer than {file.size:,} bytes: not kept")
                digest.update(chunk)
                out.write(chunk)
                if done * 10 // file.size > shown:
                    shown = done * 10 // file.size
                    say(f"{file.name}: {shown * 10} %")
            out.flush()
            os.fsync(out.fileno())
    if done != file.size:
        raise ModelError(f"{url} ended after {done:,} of {file.size:,} bytes: not kept")
    if digest.hexdigest() != file.sha256:
        raise ModelError(f"{url} has sha256 {digest.hexdigest()}, not {file.sha256}: not kept")


def fetch(
    out: Path,
    say: Callable[[str], None],
    base_url: str = HUB,
    files: Sequence[PublishedFile] = FILES,
) -> None:
    """Download what `out` lacks of `files`. Raises `ModelError`; then nothing half is left.

    A file that is there already is kept when its hash is right, and replaced when not.
    """
    base_url = base_url.rstrip("/")
    if "@" in base_url:
        raise ModelError("the URL of a mirror may not hold a user name or password")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file in files:
            target = out / file.name
            there = target.is_file() and target.stat().st_size == file.size
            if there and sha256_of(target) == file.sha256:
                say(f"{file.name}: there already")
                continue
            if shutil.disk_usage(out).free < file.size + SPARE:
                raise ModelError(f"{out} has no room for the {file.size:,} bytes of {file.name}")
            handle, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=out)
            os.close(handle)
            try:
                os.chmod(name, 0o644)  # as any other file: temporary ones are for their owner only
                _download(f"{base_url}/{file.path}", file, Path(name), say)
                os.replace(name, target)
            finally:
                Path(name).unlink(missing_ok=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ModelError(f"cannot download: {reason}\n{by_hand(out, base_url, files)}") from None
    except OSError as error:
        raise ModelError(f"{out} cannot be written: {error.strerror or error}") from None
