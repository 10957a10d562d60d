"""The published HHEM-2.1-Open: its pinned files, their checked download, and its scores.

The weights are vectara/hallucination_evaluation_model (model card: Apache-2.0). The tokenizer is
the one of google/flan-t5-base, which that model was trained from and whose tokenizer its own code
loads by name. Pairs and scores are those of the model card.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from ragmeter.core.files import load_yaml, replacing
from ragmeter.scorers.hhem.model import ModelError, sha256_of

HUB_URL = "https://huggingface.co"
_TIMEOUT_SECONDS = 30.0  # without a byte: then there is no network worth waiting for
_SPARE_BYTES = 16 << 20  # left free on the disk
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class PublishedFile:
    """A file of a pinned revision of a repository of the model hub."""

    name: str
    repository: str
    revision: str
    size: int  # bytes
    sha256: str

    @property
    def path(self) -> str:
        """Path of the file's URL."""
        return f"{self.repository}/resolve/{self.revision}/{self.name}"


@dataclass(frozen=True)
class PublishedPair:
    """A pair of the model card with its score."""

    premise: str
    hypothesis: str
    score: float


_PUBLISHED = load_yaml(__package__, "published.yaml")
PUBLISHED_FILES = tuple(PublishedFile(**file) for file in _PUBLISHED["files"])
TOKENIZER_FILE, WEIGHTS_FILE = PUBLISHED_FILES
PUBLISHED_PAIRS = tuple(PublishedPair(**pair) for pair in _PUBLISHED["pairs"])


def manual_instructions(
    out: Path, base_url: str = HUB_URL, files: Sequence[PublishedFile] = PUBLISHED_FILES
) -> str:
    """Return what to do where this machine reaches no hub."""
    lines = [f"By hand: on a machine with a network download these, and put both into {out}:"]
    for file in files:
        lines += [
            f"  {base_url}/{file.path}",
            f"    as {file.name}, {file.size:,} bytes, sha256 {file.sha256}",
        ]
    lines.append(f"Then: python -m training.hhem convert {out}")
    return "\n".join(lines)


def _download(url: str, file: PublishedFile, target: Path, say: Callable[[str], None]) -> None:
    digest = hashlib.sha256()
    done = 0
    shown = 0
    with (
        httpx.Client(follow_redirects=True, timeout=_TIMEOUT_SECONDS) as client,
        client.stream("GET", url) as reply,
    ):
        reply.raise_for_status()
        with target.open("wb") as out:
            for chunk in reply.iter_bytes(_CHUNK_BYTES):
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


def fetch_model(
    out: Path,
    say: Callable[[str], None],
    base_url: str = HUB_URL,
    files: Sequence[PublishedFile] = PUBLISHED_FILES,
) -> None:
    """Download files, unless they are there with the right hash; no half file is left behind.

    Raises:
        ModelError: A file cannot be had; the text says how to get it by hand.
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
            if shutil.disk_usage(out).free < file.size + _SPARE_BYTES:
                raise ModelError(f"{out} has no room for the {file.size:,} bytes of {file.name}")
            with replacing(target) as part:
                _download(f"{base_url}/{file.path}", file, part, say)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ModelError(
            f"cannot download: {reason}\n{manual_instructions(out, base_url, files)}"
        ) from None
    except OSError as error:
        raise ModelError(f"{out} cannot be written: {error.strerror or error}") from None
