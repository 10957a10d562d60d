"""Workers that export results, and show them live, on a real Kafka."""

from __future__ import annotations

import gzip
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.kafka.cluster import workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.traces import trace_line
from tests.waiting import PATIENCE, until


@contextmanager
def receiver() -> Iterator[tuple[str, set[str]]]:
    """A receiver of OTLP logs: its URL, and the ids of the traces that came."""
    found: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                for record in logs.scope_logs[0].log_records:
                    for pair in record.attributes:
                        if pair.key == "ragmeter.trace_id":
                            found.add(pair.value.string_value)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.real
@pytest.mark.slow
def test_a_worker_exports_results_and_shows_them_live(broker: KafkaServer, tmp_path: Path) -> None:
    place = Place(broker, tmp_path)
    with receiver() as (url, exported):
        worker = place.worker(settings={"results_export": {"endpoint": url}})
        with workers(worker):
            until(lambda: worker.ready)
            live = urllib.request.urlopen(
                f"http://127.0.0.1:{worker.port}/v1/results", timeout=PATIENCE
            )
            live.readline()  # it listens
            place.produce([trace_line(n) for n in range(40)])
            until(lambda: len(exported) == 40)
            shown = {json.loads(live.readline())["trace_id"] for _ in range(40)}
            live.close()
            sent = 'ragmeter_results_exported_total{signal="logs",result="sent"}'
            until(lambda: worker.metrics().get(sent, 0) >= 40)
        assert exported == shown == {f"t{n}" for n in range(40)}
