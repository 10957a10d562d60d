"""What decoding OTLP costs, beside what protobuf's own parse of the same bytes costs.

    python -m benchmarks.otlp [--repeat 7] [--spans 512] [--mix 4000] [--hostile]

The spans are those of the bundled bodies (`tests/data/otlp/wire`), put into requests of `--spans`
spans as a batching exporter sends them. Figures are CPU time, the least over the repeats: what else
runs on the machine only ever adds. Then the way from requests to native traces, stage by stage, for
`--mix` spans of all bundled samples, a span of 114 kB and a request of 20 MB
(`benchmarks.otlp_stages`). `--hostile` decodes bodies of 20 MiB that are made to cost much,
each in a process of its own, and prints CPU seconds and the growth of the process's peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic_core import from_json, to_json
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.otlp.reader import UndecodableBody
from ragmeter.ingest.stored_spans import dump_span, load_span

from benchmarks import otlp_stages

__all__ = ["main"]

WIRE = Path(__file__).parents[1] / "tests" / "data" / "otlp" / "wire"
SIZE = 20 * 2**20


def request(spans: int) -> bytes:
    """One request of about so many spans, as protobuf."""
    bodies = [path.read_bytes() for path in sorted(WIRE.glob("*.pb"))]
    held = len(decode_traces(b"".join(bodies), json=False).spans)
    # requests are lists: laid end to end they are one request
    return b"".join(bodies) * max(1, spans // held)


def as_json(body: bytes) -> bytes:
    """The same request as OTLP/JSON (protobuf's own JSON has base64 ids, which cost the same)."""
    return to_json(MessageToDict(ExportTraceServiceRequest.FromString(body)))


def least(work: Callable[[], object], repeat: int) -> float:
    def once() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return min(once() for _ in range(repeat))


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _frame(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _varint(len(content)) + content


def _spans(content: bytes) -> bytes:
    return _frame(0x0A, _frame(0x12, content))


IDS = _frame(0x0A, b"\1" * 16) + _frame(0x12, b"\2" * 8)
_JSON_IDS = b'"traceId":"%b","spanId":"%b"' % (b"1" * 32, b"2" * 16)


def _json(spans: bytes) -> bytes:
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + spans + b"]}]}]}"


def _until_full(make: Callable[[int], bytes], between: bytes = b"") -> bytes:
    parts: list[bytes] = []
    size = 0
    for number in itertools.count():
        part = make(number)
        size += len(part) + len(between)
        if size > SIZE:
            return between.join(parts)
        parts.append(part)
    raise AssertionError


def _attribute(number: int) -> bytes:
    text = b"%024x" % number
    return _frame(0x4A, _frame(0x0A, text) + _frame(0x12, _frame(0x0A, text)))


def _json_attribute(number: int) -> bytes:
    return b'{"key":"k%d","value":{"stringValue":"v%d"}}' % (number, number)


def _chain(number: int) -> bytes:
    """Maps in maps, as deep as the parser goes, under keys that no other has."""
    return b"".join(b'{"%x":' % (150 * number + n) for n in range(150)) + b"1" + b"}" * 150


HOSTILE: dict[str, Callable[[], tuple[bytes, bool]]] = {
    "proto: empty spans": lambda: (_spans(b"\x12\x00" * (SIZE // 2)), False),
    "proto: 1.9 million empty spans": lambda: (_spans(b"\x12\x00" * 1_900_000), False),
    "proto: spans of ids": lambda: (_spans(_frame(0x12, IDS + b"\x4a\x06" * 3) * 500_000), False),
    "proto: attributes of one span": lambda: (
        _spans(_frame(0x12, IDS + _until_full(_attribute))),
        False,
    ),
    "proto: spans of 100 attributes": lambda: (
        _spans(
            _until_full(
                lambda n: _frame(
                    0x12, IDS + b"".join(_attribute(100 * n + inner) for inner in range(100))
                )
            )
        ),
        False,
    ),
    "proto: links of 32 bytes": lambda: (
        _spans(_frame(0x12, IDS + _frame(0x6A, _frame(0x0A, b"x" * 30)) * (SIZE // 34))),
        False,
    ),
    "proto: one text": lambda: (
        _spans(_frame(0x12, IDS + _frame(0x4A, _frame(0x12, _frame(0x0A, b"x" * SIZE))))),
        False,
    ),
    "json: empty spans": lambda: (_json(b"{}," * (SIZE // 3) + b"{}"), True),
    "json: maps in maps": lambda: (b'{"x":[' + _until_full(_chain, b",")[: SIZE // 2], True),
    "json: distinct keys": lambda: (
        b'{"x":{' + _until_full(lambda n: b'"%x":1' % n, b",") + b"}}",
        True,
    ),
    "json: attributes of one span": lambda: (
        _json(b"{" + _JSON_IDS + b',"attributes":[' + _until_full(_json_attribute, b",") + b"]}"),
        True,
    ),
    "json: brackets": lambda: (b"[" * SIZE, True),
    "json: digits": lambda: (_json(b'{"kind":' + b"9" * SIZE + b"}"), True),
    "json: halves of pairs": lambda: (b'{"x":"' + b"\\ud83d" * (SIZE // 6) + b'"}', True),
    "json: no UTF-8": lambda: (b'{"x":"' + b"\xff" * SIZE + b'"}', True),
}


def _peak() -> float:
    """MiB, of this program alone: getrusage's peak is handed on by the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def run_hostile(name: str, path: Path, json: bool) -> None:
    """In a process of its own, that did not build the body: its peak is what decoding takes."""
    body = path.read_bytes()
    before = _peak()
    started = time.process_time()
    try:
        decoded = decode_traces(body, json=json)
        outcome = f"{len(decoded.spans)} spans; rejected: {decoded.message or 'none'}"
    except UndecodableBody as error:
        outcome = f"{error.reason}: {str(error)[:50]}"
    seconds, grown = time.process_time() - started, _peak() - before
    print(f"{name:32}{len(body) / 2**20:6.1f} MiB{seconds:7.2f} s{grown:+7.0f} MiB  {outcome}")


def hostile() -> None:
    spawn = multiprocessing.get_context("spawn")  # a fork would begin with our peak
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "body")
        for name, make in HOSTILE.items():
            body, json = make()
            path.write_bytes(body)
            process = spawn.Process(target=run_hostile, args=(name, path, json))
            process.start()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--spans", type=int, default=512, help="spans in a request")
    parser.add_argument("--mix", type=int, default=4_000, help="spans of the sample mix")
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args()
    if options.hostile:
        hostile()
        return
    body = request(options.spans)
    plain = as_json(body)
    spans = decode_traces(body, json=False).spans
    stored = [dump_span(span) for span in spans]
    attributes = sum(len(span.attributes) for span in spans) / len(spans)
    print(
        f"a request of {len(spans)} spans of {attributes:.0f} attributes: {len(body) / 1000:.0f} kB"
        f" of protobuf, {len(plain) / 1000:.0f} kB of JSON"
    )
    works: dict[str, Callable[[], object]] = {
        "protobuf: bare parse": lambda: ExportTraceServiceRequest.FromString(body),
        "protobuf: decode_traces": lambda: decode_traces(body, json=False),
        "json: bare parse": lambda: from_json(plain),
        "json: decode_traces": lambda: decode_traces(plain, json=True),
        "dump_span": lambda: [dump_span(span) for span in spans],
        "load_span": lambda: [load_span(data) for data in stored],
    }
    base = 0.0
    for name, work in works.items():
        seconds = least(work, options.repeat)
        base = base or seconds
        print(
            f"{name:26}{len(spans) / seconds:12,.0f} spans/s"
            f"{seconds / len(spans) * 1e6:8.1f} us/span{seconds / base:8.1f} x bare protobuf"
        )
    otlp_stages.run(options.repeat, options.mix, options.spans)


if __name__ == "__main__":
    main()
