"""Several redrives begun in the same moment: one works, and no letter goes out twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from kafka import KafkaProducer

from tests.kafka.place import Place
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.slow]

REDRIVES = 3
LETTERS = 350  # more than three batches: they do not end before the others have begun


def test_redrives_begun_at_once_send_each_letter_once(place: Place, tmp_path: Path) -> None:
    bury(place)
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({"kafka": place.kafka}))
    command = [
        sys.executable,
        "-m",
        "ragmeter",
        "kafka",
        "dlq",
        "redrive",
        "-c",
        str(config),
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(REDRIVES)
    ]
    reported = [process.communicate(timeout=PATIENCE)[0] for process in running]
    for process, text in zip(running, reported, strict=True):
        if process.returncode:
            assert process.returncode == 1, text
            assert "another redrive was begun" in text
        # one that waited for the others finds nothing left
    assert any(process.returncode == 0 for process in running), reported
    found = Counter(record.value for record in place.records(place.traces))
    assert found == {b"%d" % number: 1 for number in range(LETTERS)}


def bury(place: Place) -> None:
    producer = KafkaProducer(bootstrap_servers=place.server.bootstrap)
    for number in range(LETTERS):
        headers = [
            ("reason", b"invalid_json"),
            ("error", b"[]"),
            ("topic", place.traces.encode()),
            ("partition", b"1"),
            ("offset", b"%d" % number),
            ("attempt", b"1"),
        ]
        producer.send(place.settings.kafka.topics.dead, b"%d" % number, headers=headers)
    producer.flush(30)
    producer.close()
