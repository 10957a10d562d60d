from __future__ import annotations

from ragmeter_exporters.exposition import accepts_gzip, prefers_openmetrics

from tests.tables import each_row

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3_TEXT_FIRST = (
    "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2"
)


@each_row(
    ("accept", "openmetrics"),
    [
        ([PROMETHEUS_2], True),
        ([PROMETHEUS_3_TEXT_FIRST], False),
        (["text/html", "application/openmetrics-text"], True),
        (["*/*"], False),
        ([], False),
        (["application/openmetrics-text;q=0"], False),
        (["application/openmetrics-text;q=high"], False),
    ],
)
def test_openmetrics_goes_to_those_who_prefer_it(accept: list[str], openmetrics: bool) -> None:
    assert prefers_openmetrics(accept) is openmetrics


@each_row(
    ("encoding", "gzip"),
    [
        (["gzip"], True),
        (["br, GZIP;q=0.5"], True),
        (["gzip;q=0, *"], False),
        (["*"], True),
        (["identity"], False),
        ([], False),
    ],
)
def test_gzip_goes_to_those_who_accept_it(encoding: list[str], gzip: bool) -> None:
    assert accepts_gzip(encoding) is gzip
