"""A server of aiohttp that reads a body and answers: what a post costs without any work.

python -m benchmarks.bare_server PORT
"""

from __future__ import annotations

import sys

from aiohttp import web


async def _answer(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({"accepted": 1})


async def _ready(_: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Serve until the process is terminated."""
    app = web.Application()
    app.router.add_post("/v1/rag/traces", _answer)
    app.router.add_get("/readyz", _ready)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
