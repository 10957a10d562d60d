"""Metric families of the process, written by collectors; listed so that the docs are whole."""

from __future__ import annotations

from exporters.exposition import Family

__all__ = ["PROCESS"]


def _process(name: str, text: str, labels: tuple[str, ...] = (), unit: str = "") -> Family:
    kind = "counter" if name.endswith("_total") else "gauge"
    return Family(name, kind, text, labels, unit, "Process", ours=False)  # type: ignore[arg-type]


PROCESS = (
    _process(
        "ragmeter_http_refused_total",
        "Requests and connections that a port refused, by why: no_token, wrong_token, certificate,"
        " closed, host, origin, tls (no handshake), slow, connections (too many).",
        ("port", "reason"),
    ),
    _process("process_virtual_memory_bytes", "Virtual memory.", unit="bytes"),
    _process("process_resident_memory_bytes", "Resident memory.", unit="bytes"),
    _process("process_start_time_seconds", "Start of the process, Unix time.", unit="seconds"),
    _process("process_cpu_seconds_total", "User and system CPU time.", unit="seconds"),
    _process("process_open_fds", "Open file descriptors."),
    _process("process_max_fds", "Limit on open file descriptors."),
    _process(
        "python_info",
        "The Python that runs it.",
        ("implementation", "major", "minor", "patchlevel", "version"),
    ),
    _process("python_gc_objects_collected_total", "Objects collected.", ("generation",)),
    _process("python_gc_objects_uncollectable_total", "Objects that cannot be.", ("generation",)),
    _process("python_gc_collections_total", "Collections.", ("generation",)),
)
