"""Load settings from defaults, a YAML file and the environment, and render their reference.

Environment names are `RAGMETER_` and the key in upper case with two underscores between levels:
`http.metrics_port` is `RAGMETER_HTTP__METRICS_PORT`. The settings themselves are in
`ragmeter.config.settings`. No error text and no dump shows a secret.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, Secret, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, InitSettingsSource

from ragmeter.config.base import SettingsSection
from ragmeter.config.settings import Settings
from ragmeter.core.errors import UsageError
from ragmeter.core.files import read_yaml

ENV_PREFIX = "RAGMETER_"

# With PYDANTIC_SETTINGS_DEBUG in the environment it would log all values, secrets included.
logging.getLogger("pydantic_settings").setLevel(logging.INFO)

# Kubernetes injects the first ones beside a Service called ragmeter; `ragmeter canary run` reads
# the last one itself.
_NO_SETTING = re.compile(r"RAGMETER_(SERVICE_(HOST|PORT.*)|PORT(_\d+_(TCP|UDP).*)?|CANARY_TOKEN)")

_MAX_MEANT = 3  # settings that are offered for an unknown one
_MAX_SHOWN_CHARS = 80  # of a value in an error

# By the first part of pydantic's error type.
_NEEDED = {
    "bool": "`true` or `false`",
    "dict": "a map",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "a map of settings",
    "path": "a path",
    "string": "text",
}

_TYPE_NAMES = {
    "SecretStr": "secret text",
    "SecretUrl": "URL",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "`true` or `false`",
    "NoneType": "nothing",
    "RedactionRuleSettings": "redactrule",
    "ResolverSource": "source",
    "SamplingRates": "rates",
}
_BOUNDS = {"gt": "over {}", "ge": "at least {}", "lt": "under {}", "le": "at most {}"}


class ConfigError(UsageError):
    """Mistakes in the configuration, one a line."""


def load_settings(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
    *,
    model: type[Settings] = Settings,
) -> Settings:
    """Load the settings of a YAML file, then the environment, then a tree; the last one wins.

    Args:
        path: The file, if any.
        environ: The environment.
        overrides: The tree, if any.
        model: The settings that there are; those of an agent are in `ragmeter.app.settings`.

    Raises:
        ConfigError: The text names the key, the value and what is allowed.
    """
    file = {} if path is None else _without_empty_sections(_read_file(path), model)
    environment = EnvSettingsSource(
        model, case_sensitive=False, env_prefix=ENV_PREFIX, env_nested_delimiter="__"
    )
    environment.env_vars = _read_environment(environ, model)
    sources = (
        InitSettingsSource(model, dict(overrides or {})),
        environment,
        InitSettingsSource(model, file),
    )
    try:
        return model(_build_sources=(sources, {}))
    except ValidationError as error:
        raise ConfigError(_explain(error, model)) from None


def iter_settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Yield every key with its field and default, in the order of the configuration reference."""
    for name, field in model.model_fields.items():
        # pydantic 2.10 takes `list` for a factory that wants the fields before it
        default = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, SettingsSection):
            yield from iter_settings(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field, default


def explicit_settings(settings: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield every key that a file, the environment or an option has set."""
    for name in type(settings).model_fields:
        if name in settings.model_fields_set:
            value = getattr(settings, name)
            if isinstance(value, SettingsSection):
                yield from explicit_settings(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}"


def dump_settings(settings: Settings) -> str:
    """Return the settings in force as YAML, in which secrets are masked by their types."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def render_reference(model: type[Settings]) -> str:
    """Return the configuration reference as Markdown."""
    rows = (_reference_row(*leaf) for leaf in iter_settings(model))
    head = files(__package__).joinpath("reference_head.md").read_text("utf-8")
    return head + "".join(rows)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        tree = read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: not UTF-8, an impossible date, a number of thousands of digits
        raise ConfigError(f"{path}: not YAML: {_yaml_error(error)}") from None
    if tree is not None and not isinstance(tree, dict):
        raise ConfigError(f"{path}: a mapping of settings is needed")
    for key, variable in _unfilled(tree):
        raise ConfigError(
            f"{path}: {key} holds {variable}: a file of settings takes no variables of the"
            f" environment; set {_environment_name(key)} in their place"
        )
    settings = {str(key): value for key, value in (tree or {}).items()}
    # as in Compose: what anchors of YAML stand below
    return {key: value for key, value in settings.items() if not key.startswith("x-")}


def _without_empty_sections(tree: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Leave out sections without a setting: all their lines may be comments."""
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        field = model.model_fields.get(name)
        section = field.annotation if field is not None else None
        if isinstance(section, type) and issubclass(section, SettingsSection):
            if value is None:
                continue
            value = _without_empty_sections(value, section) if isinstance(value, dict) else value
        kept[name] = value
    return kept


# As Compose, Helm and OpenTelemetry's collector fill them in: `${NAME}`, `${env:NAME:-default}`.
_VARIABLE = re.compile(r"\$\{(?:env:)?[A-Za-z_]\w{0,100}(?::?[-?][^}]{0,200})?\}")


def _unfilled(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys whose texts hold a variable, with its name, which is no secret."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _unfilled(value, f"{key}.{name}" if key else str(name))
    elif isinstance(tree, list):
        for value in tree:
            yield from _unfilled(value, key)
    elif isinstance(tree, str) and (match := _VARIABLE.search(tree)):
        yield key, re.sub(r":?[-?][^}]*\}", "}", match[0])


def _environment_name(key: str) -> str:
    return f"{ENV_PREFIX}{key.replace('.', '__').upper()}"


# What the parser's words mean for a person, by a part of them.
_YAML_CURES = (
    ("'\\t'", ": a tab; indent with blanks"),
    ("cannot start any token", "; a text that begins with a sign needs quotes"),
    ("undefined alias", "; a text that begins with * needs quotes"),
    ("constructor for the tag", "; a text that begins with ! needs quotes"),
    ("mapping values are not allowed", "; a text with `: ` in it needs quotes"),
    ("another document", "; one is read, without `---` within"),
)


def _yaml_error(error: Exception) -> str:
    """Describe the error in one line without the content of the file, which may be a secret.

    The parser quotes the line, and names an alias or a tag (a password may begin with `*` or `!`).
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    problem = error.problem or "broken"
    cure = next((cure for words, cure in _YAML_CURES if words in problem), "")
    problem = re.sub(r" '(?!<)[^']{2,}'", "", problem) + cure
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


# `[::1]:9092` begins like a list and is none
_ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%\w]*\](?::\d+)?\s*(?:,|$)")


def _read_environment(environ: Mapping[str, str], model: type[Settings]) -> dict[str, Any]:
    """Return the variables of settings in lower case, with JSON decoded."""
    keys = [key for key, _, _ in iter_settings(model)]
    names = [_environment_name(key) for key in keys]
    values: dict[str, Any] = {}
    for name, written in environ.items():
        if name not in names and name.upper() in names:
            raise ConfigError(f"{name}: no such setting; did you mean {name.upper()}?")
        if not name.startswith(ENV_PREFIX) or _NO_SETTING.fullmatch(name):
            continue
        text = _plain_text(written)
        if not text:
            continue  # compose files and charts write unset variables as empty ones
        if name not in names:
            raise ConfigError(_unknown(name, names))
        is_json = text.startswith(("[", "{")) and not _ADDRESS.match(text)
        try:
            values[name.lower()] = json.loads(text) if is_json else text
        except ValueError as error:
            form = ' (a list is a,b or ["a", "b"])' if text.startswith("[") else ""
            raise ConfigError(f"{name}: broken JSON: {error}{form}") from None
    return values


def _plain_text(text: str) -> str:
    """Return a variable's text without the line end of a file, and the quotes of an `--env-file`.

    Docker hands both on.
    """
    text = text.strip()
    quote = text[:1]
    inside = text[1:-1]
    quoted = len(text) > 1 and quote in "\"'" and text.endswith(quote) and quote not in inside
    return inside if quoted else text


def _unknown(name: str, names: Iterable[str]) -> str:
    """Say that a setting is unknown, and which are meant.

    Those are all of its section whose names hold its own, else the one that is written most alike.
    """
    mark = "__" if name.startswith(ENV_PREFIX) else "."
    section, _, last = name.rpartition(mark)
    by_key = {one.removeprefix(ENV_PREFIX): one for one in names}
    if inside := [one for one in by_key.values() if one.startswith(f"{name}{mark}")]:
        return f"{name}: it is a section; set one of its settings, as {inside[0]}"
    of_section = [one for one in by_key.values() if one.rpartition(mark)[0] == section]
    close = [one for one in of_section if last and last in one.rpartition(mark)[2]]
    if not close:
        by_key |= {part: part for part in _sections(by_key, mark)}
        written = name.removeprefix(ENV_PREFIX)
        written = written.lower() if mark == "." else written
        alike = difflib.get_close_matches(written, by_key, 1, 0.7)
        close = [by_key[key] for key in alike]
    meant = " or ".join(close[:_MAX_MEANT])
    if not meant and mark == "." and mark not in name:
        return f"{name}: no such setting; keys of your own begin with x-"
    return f"{name}: no such setting" + (f"; did you mean {meant}?" if meant else "")


def _sections(keys: Iterable[str], mark: str) -> set[str]:
    """Return the sections, which a file may misspell; the environment names none."""
    if mark != ".":
        return set()
    return {key.rpartition(mark)[0] for key in keys if mark in key}


def _explain(error: ValidationError, model: type[Settings]) -> str:
    keys = [key for key, _, _ in iter_settings(model)]
    secrets = list(_secret_keys(model))
    return "\n".join(_explain_item(item, keys, secrets) for item in error.errors())


def _explain_item(item: ErrorDetails, keys: list[str], secrets: list[str]) -> str:
    key = ".".join(map(str, item["loc"]))
    kind = item["type"]
    value = item["input"]
    if kind == "extra_forbidden" and key in keys:
        return f"{key}: sections are maps in one another; a name of a file's has no dots"
    if kind == "extra_forbidden":
        return _unknown(key, keys)
    if kind.endswith(("_type", "_parsing", "_from_float")) and kind.split("_")[0] in _NEEDED:
        message = f"{_NEEDED[kind.split('_')[0]]} is needed"
    else:
        message = re.sub(r"^(Input|List|String) should ", "it must ", item["msg"])
        message = message.removeprefix("Value error, ").replace(" after validation", "")
        message = message.replace("Field required", "it is missing")
    if isinstance(value, Mapping) and kind in ("value_error", "missing"):
        return f"{key}: {message}"  # the value is a section as a whole, which may hold secrets
    section = ".".join(part for part in item["loc"] if isinstance(part, str))
    if any(f"{secret}.".startswith(f"{section}.") for secret in secrets):
        shown = "what is given"  # no value of the type was made of it, which would mask it
    else:
        shown = repr(value)
        if len(shown) > _MAX_SHOWN_CHARS:
            shown = f"{shown[: _MAX_SHOWN_CHARS - 3]}..."
    return f"{key}: {shown} is not allowed: {message}"


def _secret_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the keys of secrets; those in the items of a list are without an index."""
    for key, field, _ in iter_settings(model, prefix):
        if _holds_secret(field.annotation):
            yield key
        for item in get_args(field.annotation):
            if isinstance(item, type) and issubclass(item, SettingsSection):
                yield from _secret_keys(item, f"{key}.")


def _holds_secret(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, SecretStr | Secret):
        return True
    return any(map(_holds_secret, get_args(annotation)))


def _type_text(annotation: Any) -> str:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Literal:
        return " \\| ".join(f"`{item}`" for item in arguments)
    if origin in (Union, UnionType):
        return " or ".join(map(_type_text, arguments))
    if origin is list:
        return f"list of {_type_text(arguments[0])}"
    if origin is dict:
        return f"map of {_type_text(arguments[1])} by name"
    if origin is Annotated:
        return _type_text(arguments[0])
    name = getattr(annotation, "__name__", str(annotation))
    return _TYPE_NAMES.get(name, name.removesuffix("Settings").lower())


def _plain_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True, mode="json")
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, SecretStr):  # that of a default is none
        return value.get_secret_value()
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)


def _reference_row(key: str, field: FieldInfo, default: Any) -> str:
    shown = "none" if default is None else f"`{json.dumps(_plain_value(default))}`"
    bounds = ", ".join(
        text.format(getattr(item, name))
        for item in field.metadata
        for name, text in _BOUNDS.items()
        if getattr(item, name, None) is not None
    )
    meaning = f"{field.description} ({bounds})" if bounds else field.description
    return f"| `{key}` | {_type_text(field.annotation)} | {shown} | {meaning} |\n"
