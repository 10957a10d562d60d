"""The download, from a hub of our own: whole files with the right hash, or none."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from ragmeter.scorers.hhem.model import ModelError
from werkzeug import Request, Response

from tests.http_stub import ANY_PATH
from training.hhem import download as module
from training.hhem.download import (
    PUBLISHED_FILES,
    PublishedFile,
    fetch_model,
    manual_instructions,
)

WEIGHTS = bytes(range(256)) * 10_000
TOKENIZER = b'{"version": "1.0"}'


def published(name: str, data: bytes) -> PublishedFile:
    return PublishedFile(name, "owner/model", "0123", len(data), hashlib.sha256(data).hexdigest())


FOUND = (published("tokenizer.json", TOKENIZER), published("model.safetensors", WEIGHTS))


class Hub:
    """Answers with `replies` by path: a status, and a body of which `cut` bytes are not sent."""

    def __init__(self, server: HTTPServer) -> None:
        self.replies = {
            f"/{file.path}": (200, data, 0)
            for file, data in zip(FOUND, (TOKENIZER, WEIGHTS), strict=True)
        }
        self.asked: list[str] = []
        self.url = server.url_for("")
        server.expect_request(ANY_PATH).respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        self.asked.append(request.path)
        status, body, cut = self.replies.get(request.path, (404, b"", 0))
        if status == 302:
            return Response(status=status, headers={"Location": body.decode()})
        response = Response(body[: len(body) - cut], status)
        response.content_length = len(body)
        return response


@pytest.fixture
def hub(httpserver: HTTPServer) -> Hub:
    return Hub(httpserver)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_both_files_come_whole(hub: Hub, tmp_path: Path) -> None:
    reported: list[str] = []
    out = tmp_path / "new" / "hhem"
    fetch_model(out, reported.append, f"{hub.url}/", FOUND)
    assert names(out) == {"tokenizer.json", "model.safetensors"}
    assert (out / "model.safetensors").read_bytes() == WEIGHTS
    assert (out / "tokenizer.json").read_bytes() == TOKENIZER
    assert "model.safetensors: 100 %" in reported


def test_what_is_there_is_not_asked_for_again_unless_it_is_wrong(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(TOKENIZER)
    (tmp_path / "model.safetensors").write_bytes(bytes(len(WEIGHTS)))
    fetch_model(tmp_path, print, hub.url, FOUND)
    assert hub.asked == [f"/{FOUND[1].path}"]
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_redirects_are_followed(hub: Hub, tmp_path: Path) -> None:
    path = f"/{FOUND[1].path}"
    hub.replies["/elsewhere"] = hub.replies[path]
    hub.replies[path] = (302, b"/elsewhere", 0)
    fetch_model(tmp_path, print, hub.url, FOUND)
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((200, WEIGHTS[::-1], 0), "sha256"),
        ((200, WEIGHTS + b"x", 0), "longer than"),
        ((200, WEIGHTS[:-1], 0), "ended after"),
        ((200, WEIGHTS, 7), "by hand"),
        ((404, b"", 0), "by hand"),
        ((503, b"", 0), "by hand"),
    ],
    ids=["other bytes", "too long", "short", "cut off", "missing", "broken"],
)
def test_what_is_not_the_file_is_not_kept(
    hub: Hub, tmp_path: Path, reply: tuple[int, bytes, int], message: str
) -> None:
    hub.replies[f"/{FOUND[1].path}"] = reply
    (tmp_path / "model.safetensors").write_bytes(b"earlier")
    with pytest.raises(ModelError, match=f"(?i){message}"):
        fetch_model(tmp_path, print, hub.url, FOUND)
    assert names(tmp_path) == {"tokenizer.json", "model.safetensors"}
    assert (tmp_path / "model.safetensors").read_bytes() == b"earlier"


def test_without_a_network_it_says_what_to_do_by_hand(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ModelError) as caught:
        fetch_model(tmp_path, print, f"http://127.0.0.1:{port}")
    notified = str(caught.value)
    for file in PUBLISHED_FILES:
        assert f"/{file.repository}/resolve/{file.revision}/{file.name}" in notified
        assert file.sha256 in notified
    assert f"{PUBLISHED_FILES[1].size:,}" in notified
    assert f"python -m training.hhem convert {tmp_path}" in notified
    assert names(tmp_path) == set()


def test_a_disk_without_room_is_told_before_the_download(hub: Hub, tmp_path: Path) -> None:
    huge = replace(FOUND[0], size=1 << 60)
    with pytest.raises(ModelError, match="no room"):
        fetch_model(tmp_path, print, hub.url, [huge])
    assert hub.asked == []


@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1", "nonsense", "http://[", "ftp://x"])
def test_a_mirror_that_is_no_plain_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ModelError) as caught:
        fetch_model(tmp_path, print, url, FOUND)
    assert "secret" not in str(caught.value)


def test_the_pinned_files_are_well_formed() -> None:
    for file in PUBLISHED_FILES:
        assert len(file.revision) == 40
        assert len(file.sha256) == 64
        assert file.path in manual_instructions(Path("x"))
    assert module.HUB_URL.startswith("https://")
