"""Workers that export results, and show them live, on a real Kafka."""

from __future__ import annotations

import gzip
import json
import urllib.request
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from werkzeug import Request, Response

from tests.http_stub import http_stub
from tests.kafka.cluster import workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.traces import trace_line
from tests.waiting import PATIENCE, until


class Received(set[str]):
    """The ids of the traces of which logs came over OTLP."""

    def take(self, request: Request) -> Response:
        body = gzip.decompress(request.get_data())
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            for record in logs.scope_logs[0].log_records:
                for pair in record.attributes:
                    if pair.key == "ragmeter.trace_id":
                        self.add(pair.value.string_value)
        return Response()


@pytest.mark.real
@pytest.mark.slow
def test_a_worker_exports_results_and_shows_them_live(broker: KafkaServer, tmp_path: Path) -> None:
    place = Place(broker, tmp_path)
    exported = Received()
    with http_stub(exported.take) as server:
        endpoint = server.url_for("")
        worker = place.worker(settings={"results_export": {"endpoint": endpoint}})
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
            sent = 'ragmeter_results_exported_total{result="sent"}'
            until(lambda: worker.metrics().get(sent, 0) >= 40)
        assert exported == shown == {f"t{n}" for n in range(40)}
