"""The paths of the pages of an agent, and how names stand in them."""

from __future__ import annotations

import re
from urllib.parse import quote

TRACES_PATH = "/v1/rag/traces"  # of the endpoint for native traces

_MAX_SENT_CHARS = 100  # characters of what a caller has sent

# Clients remove the segments `.` and `..` from a path, quoted or not: `~` protects such names.
_DOTS = re.compile(r"\.\.?~*")


def service_path(service: str) -> str:
    """Return the path of the page of a service."""
    return f"/service/{_quote_segment(service)}"


def fill_path(template: str, service: str) -> str:
    """Return the path of a page about a service, whose name stands for `{service}`."""
    return template.replace("{service}", _quote_segment(service))


def details_path(service: str) -> str:
    """Return the path of the page with everything that is known of a service."""
    return f"{service_path(service)}/details"


def incident_path(service: str, incident: str) -> str:
    """Return the path of the page of an incident."""
    return f"/incident/{_quote_segment(service)}/{_quote_segment(incident)}"


def trace_path(service: str, trace_id: str) -> str:
    """Return the path of the page of a trace."""
    return f"/trace/{_quote_segment(service)}/{_quote_segment(trace_id)}"


def quote_sent(text: str) -> str:
    """Quote the start of what a caller has sent, for an answer that refuses it."""
    return repr(text[:_MAX_SENT_CHARS])


def quote_text(text: str) -> str:
    """Quote a text for the path or the query of a URL."""
    # Lone surrogates cannot stand in a URL.
    return quote(text.encode("utf-8", "replace"), safe="")


def _quote_segment(name: str) -> str:
    return quote_text(f"{name}~" if _DOTS.fullmatch(name) else name)


def read_segment(segment: str) -> str:
    """Return the name that stands, unquoted, in the path of a page."""
    return segment.removesuffix("~") if _DOTS.fullmatch(segment) else segment
