"""Measure the quality of a RAG service from its traces; docs/python.md describes these names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragmeter.app.api import read_scores, score
    from ragmeter.core.score import NoScore
    from ragmeter.metrics.custom import metric
    from ragmeter.trace import Trace

__version__ = "0.1.0"
__all__ = ["NoScore", "Trace", "__version__", "metric", "read_scores", "score"]

# Modules by public name; each is imported on first use, so that `import ragmeter` is cheap.
_MODULES = {
    "NoScore": "ragmeter.core.score",
    "Trace": "ragmeter.trace",
    "metric": "ragmeter.metrics.custom",
    "read_scores": "ragmeter.app.api",
    "score": "ragmeter.app.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
