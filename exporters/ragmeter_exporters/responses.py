"""What the handlers of the metrics port share: names from paths, and answers as HTML and JSON."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web
from ragmeter.server.paths import read_segment

HTML = "text/html; charset=utf-8"
JSON = "application/json"


def read_name(request: web.Request, name: str) -> str:
    """Return a part of the path as it was before it was quoted."""
    return read_segment(request.match_info[name])


def html_response(text: str, status: int) -> web.Response:
    """Answer with a page."""
    body = text.encode("utf-8", "replace")
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


def dump_json(document: dict[str, Any]) -> str:
    """Write a document; it holds no NaN and no infinity."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)
