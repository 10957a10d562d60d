"""The settings as they are given: defaults that work, then a YAML file, then the environment.

`load(path)` reads them in that order; a mistake raises `ConfigError`, whose text names the key,
the value and what is allowed. Environment names are `RAGMETER_` and the key in upper case with
two underscores between levels: `http.metrics_port` is `RAGMETER_HTTP__METRICS_PORT`. The keys
themselves are in `agent.settings`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit, urlunsplit

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from agent.settings import (
    Alerts,
    Budget,
    Drift,
    Hhem,
    Judge,
    Limits,
    Rates,
    Sampling,
    Section,
    Settings,
    Slo,
)

__all__ = [
    "ENV_PREFIX",
    "Alerts",
    "Budget",
    "ConfigError",
    "Drift",
    "Hhem",
    "Judge",
    "Limits",
    "Rates",
    "Sampling",
    "Settings",
    "Slo",
    "dump",
    "leaves",
    "load",
]

ENV_PREFIX = "RAGMETER_"


# What Kubernetes injects into every container beside a Service that is called ragmeter.
KUBERNETES = re.compile(r"RAGMETER_(SERVICE_(HOST|PORT.*)|PORT(_\d+_(TCP|UDP).*)?)")


class ConfigError(Exception):
    """What is wrong with the configuration, one line a mistake."""


def leaves(
    model: type[BaseModel] = Settings, prefix: str = ""
) -> Iterator[tuple[str, FieldInfo, Any]]:
    """Every key with its field and default, in order: the configuration reference."""
    for name, field in model.model_fields.items():
        default = field.default
        if isinstance(default, Section):
            yield from leaves(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field, default


def _secrets(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """The keys that must not be shown; those of the items of a list are without its index."""
    for key, field, _ in leaves(model, prefix):
        if "SecretStr" in str(field.annotation):
            yield key
        for item in get_args(field.annotation):
            if isinstance(item, type) and issubclass(item, Section):
                yield from _secrets(item, f"{key}.")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    known = {key.replace(".", "__").upper(): key for key, _, _ in leaves()}
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX) or KUBERNETES.fullmatch(name) or not text:
            continue  # an empty variable is an unset one: compose and charts write such
        key = known.get(name[len(ENV_PREFIX) :])
        if key is None:
            close = difflib.get_close_matches(name[len(ENV_PREFIX) :], known, 1)
            hint = f"; did you mean {ENV_PREFIX}{close[0]}?" if close else ""
            raise ConfigError(f"{name}: no such setting{hint}")
        value: Any = text
        if text.startswith(("[", "{")):
            try:
                value = json.loads(text)
            except ValueError as error:
                raise ConfigError(f"{name}: broken JSON: {error}") from None
        *sections, leaf = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = value
    return tree


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        both = isinstance(value, Mapping) and isinstance(old, dict)
        out[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return out


def _explain(error: ValidationError) -> str:
    lines = []
    known = [key for key, _, _ in leaves()]
    secrets = list(_secrets())
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            close = difflib.get_close_matches(key, known, 1)
            lines.append(
                f"{key}: no such setting" + (f"; did you mean {close[0]}?" if close else "")
            )
        else:
            value = repr(item["input"])
            shown = value if len(value) <= 80 else value[:77] + "..."
            message = item["msg"].removeprefix("Value error, ")
            if isinstance(item["input"], Mapping) and item["type"] in ("value_error", "missing"):
                lines.append(f"{key}: {message}")  # a section as a whole may hold secrets
                continue
            place = ".".join(part for part in item["loc"] if isinstance(part, str))
            if any(f"{one}.".startswith(f"{place}.") for one in secrets):
                shown = "what is given"
            lines.append(f"{key}: {_redacted(shown)} is not allowed: {message}")
    return "\n".join(lines)


def load(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from defaults, the YAML file, the environment and `overrides`, the last strongest.

    Raises `ConfigError`.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            loaded = yaml.safe_load(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # ValueError: no UTF-8, a date that is none, a number of thousands of digits
            raise ConfigError(f"{path}: not YAML: {_place(error)}") from None
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigError(f"{path}: a mapping of settings is needed")
        tree = loaded or {}
    tree = _merge(tree, _from_environment(environ))
    tree = _merge(tree, overrides or {})
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _place(error: Exception) -> str:
    """One line without what stands there, which may be a secret: the parser would quote the line,
    and what it takes for an alias or a tag (a password may begin with `*` or `!`)."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    problem = re.sub(r" '(?!<)[^']{2,}'", "", error.problem or "broken")
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _redacted(text: str) -> str:
    """Without user and password, where the text is or holds a URL. A password may hold what only a
    broken URL has, `@` and `/`: all up to the last `@` goes."""
    return re.sub(r"(\w+://)[^\s'\"]*@", r"\1***@", text)


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        parts = urlsplit(value)
        _, at, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"***@{host}" if at else host)
        # chat webhooks carry their secret in the path; that of an API is its version
        hidden = parts.path if parts.path.rstrip("/") in ("", "/v1") else "/***"
        return urlunsplit(parts._replace(path=hidden, query="***" if parts.query else ""))
    return value


def dump(settings: Settings) -> str:
    """The settings in force as YAML. Credentials in URLs and the sampling salt are not shown."""
    tree = settings.model_dump(mode="json")
    tree["sampling"]["salt"] = "***"
    return yaml.safe_dump(_shown(tree), sort_keys=False)
