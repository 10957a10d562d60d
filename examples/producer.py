"""How an application hands its traces to ragmeter: one, then a batch, over plain HTTP.

python examples/producer.py [URL]

`Sender` does it in the background: the application neither waits nor fails, whatever ragmeter does.
"""

import gzip
import json
import queue
import sys
import threading
import uuid
from datetime import UTC, datetime

import httpx

URL = "http://127.0.0.1:4318/v1/rag/traces"
TRIES = 5
LONGEST_WAIT = 10  # seconds between two tries, whatever Retry-After says

Group = tuple[dict[str, object], ...]


class Sender:
    """`send` only puts traces into a bounded queue; what does not fit is dropped and counted."""

    def __init__(self, url: str, most: int = 1000) -> None:
        self.url = url
        self.sent = 0
        self.dropped = 0
        self.error = ""
        self._lock = threading.Lock()
        self._client = httpx.Client(timeout=2, trust_env=False)  # no proxy to a neighbour
        self._waiting: queue.Queue[Group] = queue.Queue(most)
        self._closing = threading.Event()
        # a daemon: the application ends without it
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, *traces: dict[str, object]) -> None:
        try:
            self._waiting.put_nowait(traces)
        except queue.Full:
            self._drop(traces, "the queue is full")

    def close(self, seconds: float = 5) -> None:
        """Wait so long at most for what still waits."""
        self._closing.set()  # nothing is tried again from here on
        self._thread.join(seconds)

    def _drop(self, traces: Group, error: str) -> None:
        with self._lock:
            self.dropped += len(traces)
            self.error = error

    def _run(self) -> None:
        while not (self._closing.is_set() and self._waiting.empty()):
            try:
                traces = self._waiting.get(timeout=0.1)
            except queue.Empty:
                continue
            try:
                self._post(traces)
            except Exception as error:  # whatever it is, the next ones are tried
                self._drop(traces, repr(error))
        self._client.close()

    def _post(self, traces: Group) -> None:
        headers = {"content-type": "application/json"}
        body = json.dumps(traces[0]).encode()
        if len(traces) > 1:
            headers = {"content-type": "application/x-ndjson", "content-encoding": "gzip"}
            body = gzip.compress("\n".join(map(json.dumps, traces)).encode())
        for _ in range(TRIES):
            wait = 1.0
            try:
                reply = self._client.post(self.url, content=body, headers=headers)
            except httpx.TransportError as broken:  # not there, or too slow
                error = repr(broken)
            else:
                if reply.is_success:  # the traces are safe on disk
                    with self._lock:
                        self.sent += len(traces)
                    return
                error = f"{reply.status_code} {reply.text[:200]}"
                if reply.status_code not in (429, 503):
                    break  # sending the same again would not help
                wait = float(reply.headers.get("retry-after", wait))
            if self._closing.wait(min(wait, LONGEST_WAIT)):
                break
        self._drop(traces, error)


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


def main(url: str) -> int:
    fact = "Doors open at nine and close at five."
    batch = [trace("When do you close?", fact, f"We close at {hour} [1].") for hour in "567"]
    sender = Sender(url)
    sender.send(trace("When do you open?", fact, "We open at nine [1]."))
    sender.send(*batch)
    sender.close()
    print(f"sent {sender.sent} traces to {url}")
    missing = 1 + len(batch) - sender.sent
    if missing:
        print(f"{missing} were not sent: {sender.error or 'no answer yet'}", file=sys.stderr)
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else URL))
