"""Load settings from defaults, a YAML file and the environment, and render their reference.

The settings as they are given: defaults that work, then a YAML file, then the environment.

`load(path)` reads them in that order; a mistake raises `ConfigError`, whose text names the key,
the value and what is allowed. Environment names are `RAGMETER_` and the key in upper case with
two underscores between levels: `http.metrics_port` is `RAGMETER_HTTP__METRICS_PORT`. The keys
themselves are in `ragmeter.config.settings`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit, urlunsplit

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ragmeter.config.base import SettingsSection
from ragmeter.config.settings import Settings

ENV_PREFIX = "RAGMETER_"


# What Kubernetes injects into every container beside a Service that is called ragmeter.
KUBERNETES_VARIABLE = re.compile(r"RAGMETER_(SERVICE_(HOST|PORT.*)|PORT(_\d+_(TCP|UDP).*)?)")


class ConfigError(Exception):
    """What is wrong with the configuration, one line a mistake."""


def iter_settings(
    model: type[BaseModel] = Settings, prefix: str = ""
) -> Iterator[tuple[str, FieldInfo, Any]]:
    """Every key with its field and default, in order: the configuration reference."""
    for name, field in model.model_fields.items():
        default = field.default
        if isinstance(default, SettingsSection):
            yield from iter_settings(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field, default


def _secrets(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """The keys that must not be shown; those of the items of a list are without its index."""
    for key, field, _ in iter_settings(model, prefix):
        if "SecretStr" in str(field.annotation):
            yield key
        for item in get_args(field.annotation):
            if isinstance(item, type) and issubclass(item, SettingsSection):
                yield from _secrets(item, f"{key}.")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    known = {key.replace(".", "__").upper(): key for key, _, _ in iter_settings()}
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX) or KUBERNETES_VARIABLE.fullmatch(name) or not text:
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
    known = [key for key, _, _ in iter_settings()]
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
            lines.append(f"{key}: {_mask_credentials(shown)} is not allowed: {message}")
    return "\n".join(lines)


def load_settings(
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
            raise ConfigError(f"{path}: not YAML: {_yaml_error(error)}") from None
        if loaded is not None and not isinstance(loaded, dict):
            raise ConfigError(f"{path}: a mapping of settings is needed")
        tree = loaded or {}
    tree = _merge(tree, _from_environment(environ))
    tree = _merge(tree, overrides or {})
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _yaml_error(error: Exception) -> str:
    """One line without what stands there, which may be a secret: the parser would quote the line,
    and what it takes for an alias or a tag (a password may begin with `*` or `!`)."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    problem = re.sub(r" '(?!<)[^']{2,}'", "", error.problem or "broken")
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _mask_credentials(text: str) -> str:
    """Without user and password, where the text is or holds a URL. A password may hold what only a
    broken URL has, `@` and `/`: all up to the last `@` goes."""
    return re.sub(r"(\w+://)[^\s'\"]*@", r"\1***@", text)


def _mask_urls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _mask_urls(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_urls(item) for item in value]
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        parts = urlsplit(value)
        _, at, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"***@{host}" if at else host)
        # chat webhooks carry their secret in the path; that of an API is its version
        hidden = parts.path if parts.path.rstrip("/") in ("", "/v1") else "/***"
        return urlunsplit(parts._replace(path=hidden, query="***" if parts.query else ""))
    return value


def dump_settings(settings: Settings) -> str:
    """The settings in force as YAML. Credentials in URLs and the sampling salt are not shown."""
    tree = settings.model_dump(mode="json")
    tree["sampling"]["salt"] = "***"
    return yaml.safe_dump(_mask_urls(tree), sort_keys=False)


REFERENCE_HEAD = """# Configuration

<!-- generated by `ragmeter config reference`; do not edit -->

Settings come from the defaults, then a YAML file (`--config FILE`), then the environment; the
last one wins. In the environment a key is `RAGMETER_` and its name in upper case, with two
underscores between levels: `http.metrics_port` is `RAGMETER_HTTP__METRICS_PORT`. Lists may be
written `a,b` there, objects as JSON. `ragmeter config show` prints what is in force and
`ragmeter config check` says what is wrong.

```yaml
http: {metrics_port: 9464}
segments: [model]
alerts: {alertmanager_url: "http://127.0.0.1:9093"}
```

| key | type | default | meaning |
| --- | --- | --- | --- |
"""


def _type_text(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " \\| ".join(f"`{item}`" for item in get_args(annotation))
    if get_origin(annotation) is UnionType:
        return " or ".join(
            "nothing" if item is type(None) else _type_text(item) for item in get_args(annotation)
        )
    if get_origin(annotation) is list:
        return f"list of {_type_text(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"map of {_type_text(get_args(annotation)[1])} by name"
    if get_origin(annotation) is Annotated:
        return _type_text(get_args(annotation)[0])
    names = {
        "SecretStr": "secret text",
        "str": "text",
        "int": "whole number",
        "float": "number",
        "bool": "`true` or `false`",
    }
    name = getattr(annotation, "__name__", str(annotation))
    return names.get(name, name.lower())


def _plain_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True, mode="json")
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)


def _reference_row(key: str, field: FieldInfo, default: Any) -> str:
    shown = "none" if default is None else f"`{json.dumps(_plain_value(default))}`"
    bounds = _bounds_text(field)
    meaning = (field.description or "") + (f" ({bounds})" if bounds else "")
    return f"| `{key}` | {_type_text(field.annotation)} | {shown} | {meaning} |\n"


def _bounds_text(field: FieldInfo) -> str:
    words = {"gt": "over {}", "ge": "at least {}", "lt": "under {}", "le": "at most {}"}
    found = [
        text.format(getattr(item, name))
        for item in field.metadata
        for name, text in words.items()
        if getattr(item, name, None) is not None
    ]
    return ", ".join(found)


def render_reference() -> str:
    """The whole page as Markdown."""
    assert ENV_PREFIX in REFERENCE_HEAD
    return REFERENCE_HEAD + "".join(_reference_row(*leaf) for leaf in iter_settings())
