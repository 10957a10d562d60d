"""A small RAG service to send canaries to: five pages, the best two by words in common, and the
first sentence of the best one as the answer. It has faults on purpose: it invents an answer where
the pages have none, and takes the older of two pages that disagree.

    python examples/service.py 8077
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGES = [
    ("orders/refunds.md", "Refunds > Time", "Refunds take 14 days after the parcel came back."),
    ("orders/shipping.md", "Shipping > Cost", "Shipping costs $4.50 for orders under $50."),
    ("account/password.md", "Password > Reset", "Click Forgot password on the login page."),
    ("offices/opening-2024.md", "Opening hours", "The office opens at 9 on every weekday."),
    ("offices/opening-2026.md", "Opening hours", "From 2026 on the office opens at 8."),
]
EMPTY = {"how", "long", "does", "a", "the", "is", "do", "i", "my", "what", "when", "of", "at", "on"}


def words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"[a-z0-9]+", text.lower())} - EMPTY


def answer(query: str) -> dict[str, object]:
    asked = words(query)
    ranked = sorted(PAGES, key=lambda page: -len(asked & words(" ".join(page))))[:2]
    path, _, text = ranked[0]
    return {
        "answer": f"{text} [{path}]",
        "passages": [
            {"id": path, "text": text, "metadata": {"rel_path": path, "heading_path": heading}}
            for path, heading, text in ranked
        ],
        "model": "words-in-common",
    }


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        query = json.loads(self.rfile.read(size))["query"]
        body = json.dumps(answer(query)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8077
    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/ask", flush=True)
        server.serve_forever()
