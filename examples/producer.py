"""How an application hands its traces to ragmeter: one, then a batch, over plain HTTP.

python examples/producer.py [URL]
"""

import gzip
import json
import sys
import uuid
from datetime import UTC, datetime

import httpx

URL = "http://127.0.0.1:4318/v1/rag/traces"


def trace(question: str, passage: str, answer: str) -> dict[str, object]:
    """Only trace_id, service and timestamp are required: send the rest as far as known."""
    return {
        "trace_id": uuid.uuid4().hex,
        "service": "my-app",
        "timestamp": datetime.now(UTC).isoformat(),
        "query": question,
        "passages": [{"id": "guide#1", "text": passage, "rank": 1}],
        "answer": answer,
    }


def main(url: str) -> None:
    fact = "Doors open at nine and close at five."
    one = trace("When do you open?", fact, "We open at nine [1].")
    batch = [trace("When do you close?", fact, f"We close at {hour} [1].") for hour in "567"]
    with httpx.Client(timeout=5) as client:
        client.post(url, json=one).raise_for_status()  # 200: the trace is safe on disk
        lines = "".join(json.dumps(item) + "\n" for item in batch)
        headers = {"content-type": "application/x-ndjson", "content-encoding": "gzip"}
        body = gzip.compress(lines.encode())
        client.post(url, content=body, headers=headers).raise_for_status()  # 429: again later
    print(f"sent {1 + len(batch)} traces to {url}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else URL)
