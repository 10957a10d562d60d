"""The canary suite: its model, and the reader of suite files.

A suite has questions with their references, and describes how the service is asked and how its
replies are read. Unknown fields are mistakes: a check with a misspelt name would never fail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ragmeter.canaries.templates import JsonPath
from ragmeter.core.errors import UsageError
from ragmeter.core.metric_specs import base_name
from ragmeter.metrics.canary.checks import validate_pattern
from ragmeter.metrics.registry import metric_specs
from ragmeter.trace import Calculation, FactCheck, Id, Message, Reference, Support, Tags

MAX_QUESTIONS = 10_000
MAX_QUESTION_CHARS = 100_000
MAX_SUITE_BYTES = 32 * 2**20
MAX_SHOWN_MISTAKES = 10  # the rest are counted

_FieldLocation = Sequence[int | str]
_NESTED: dict[str, type[BaseModel]] = {
    "supports": Support,
    "checks": FactCheck,
    "calculation": Calculation,
}


class SuiteError(UsageError, ValueError):
    """Mistakes in a suite, one a line, with file, line and field."""


def list_mistakes(mistakes: Sequence[str]) -> str:
    """Return mistakes as lines; those beyond `MAX_SHOWN_MISTAKES` are counted."""
    more = len(mistakes) - MAX_SHOWN_MISTAKES
    return "\n".join([*mistakes[:MAX_SHOWN_MISTAKES], *([f"and {more} more"] if more > 0 else [])])


class _StrictSuiteModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _check_expected_metrics(expect: dict[str, float]) -> dict[str, float]:
    for name in expect:
        spec = metric_specs().get(base_name(name))
        if spec is None or not spec.scorers or spec.good is None:
            raise ValueError(f"{name!r} is not a metric that a threshold can stand on")
        if bool(spec.labels) != (":" in name):
            example = f"{base_name(name)}:5" if spec.labels else base_name(name)
            raise ValueError(f"{name!r}: write {example!r}")
    return expect


# The least value of each metric, or the most where lower is better.
_Expectations = Annotated[dict[str, float], AfterValidator(_check_expected_metrics)]


def _check_json(value: Any) -> Any:
    """Refuse what YAML can say and JSON cannot."""
    try:
        json.dumps(value, allow_nan=False)
    except TypeError as error:  # of a date
        raise ValueError(f"{error}; write it in quotes") from None
    return value


_Json = Annotated[Any, AfterValidator(_check_json)]


class RequestTemplate(_StrictSuiteModel):
    """The HTTP request that asks a question.

    `{{query}}`, `{{id}}`, `{{history}}` and `{{vars.NAME}}` stand for the fields of the question,
    and in headers `{{env.NAME}}` for an environment variable.
    """

    method: Annotated[str, Field(pattern=r"^(GET|POST|PUT)$")] = "POST"
    headers: dict[str, str] = {}
    params: dict[str, str] = Field(default={}, description="of the URL's query")
    body: _Json = Field(
        default={"query": "{{query}}"}, description="sent as JSON; a text as it is; none with GET"
    )


class PassagePaths(_StrictSuiteModel):
    """Paths within a passage; a passage may also be a text."""

    id: JsonPath = "id"
    text: JsonPath = "text"
    score: JsonPath = "score"
    metadata: JsonPath = "metadata"
    rel_path: JsonPath | None = None
    heading_path: JsonPath | None = None


class CitationPaths(_StrictSuiteModel):
    """Paths within a citation; a citation may also be the id of a passage."""

    passage_id: JsonPath = "passage_id"
    start: JsonPath = "start"
    end: JsonPath = "end"


class ReplyPaths(_StrictSuiteModel):
    """Paths within the reply: `data.answer`, `choices[0].text`, or a JSON pointer `/data/answer`.

    `$` is the whole reply. Only `answer` must exist.
    """

    answer: JsonPath = "answer"
    passages: JsonPath | None = "passages"
    passage: PassagePaths = PassagePaths()
    citations: JsonPath | None = "citations"
    citation: CitationPaths = CitationPaths()
    abstained: JsonPath | None = "abstained"
    model: JsonPath | None = "model"
    prompt_version: JsonPath | None = "prompt_version"
    scope: JsonPath | None = None


class CanaryQuestion(_StrictSuiteModel):
    """One question; a run fails if a `required` one does not pass."""

    id: Id = ""
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
    history: list[Message] | None = None
    vars: dict[str, _Json] = {}
    tags: Tags = {}
    required: bool = True
    expect: _Expectations = Field(
        default={}, description="the least value of a metric (the most where lower is better)"
    )
    reference: Reference

    @model_validator(mode="before")
    @classmethod
    def _with_id(cls, data: Any) -> Any:
        """Derive a missing id from the text, so that it does not depend on the order."""
        if isinstance(data, Mapping) and data.get("id") is None:
            text = str(data.get("query"))
            mark = blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
            return {**data, "id": f"q-{mark}"}
        return data

    @field_validator("reference", mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            _reject_unknown_fields(data, Reference, "")
            for name, model in _NESTED.items():
                value = data.get(name)
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, Mapping):
                        _reject_unknown_fields(item, model, f"{name}: ")
        return data

    @field_validator("reference")
    @classmethod
    def _sound_patterns(cls, reference: Reference) -> Reference:
        for check in reference.checks:
            for pattern in check.patterns:
                validate_pattern(pattern)
        return reference


class CanarySuite(_StrictSuiteModel):
    """A suite; its name and tags, and the id of the question, become tags of every trace."""

    service: Id
    name: Annotated[str, Field(max_length=200)] = ""
    tags: Tags = {}
    request: RequestTemplate = RequestTemplate()
    response: ReplyPaths = ReplyPaths()
    expect: _Expectations = Field(default={}, description="as of a question, for all of them")
    questions: Annotated[list[CanaryQuestion], Field(min_length=1, max_length=MAX_QUESTIONS)]

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        seen: set[str] = set()
        for question in self.questions:
            if question.id in seen:
                raise ValueError(f"two questions have the id {question.id!r}")
            seen.add(question.id)
        return self


def _reject_unknown_fields(data: Mapping[Any, Any], model: type[BaseModel], where: str) -> None:
    others = sorted(str(key) for key in data if key not in model.model_fields)
    if others:
        allowed = ", ".join(model.model_fields)
        raise ValueError(f"{where}{others[0]!r} is not known; allowed: {allowed}")


def read_suite(path: Path, service: str | None = None) -> CanarySuite:
    """Read and validate a suite file.

    It is YAML, or JSON Lines if its name ends in `.jsonl` or `.ndjson`; `service` replaces its own.

    Raises:
        SuiteError: The suite has mistakes.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(MAX_SUITE_BYTES + 1)
    if len(data) > MAX_SUITE_BYTES:
        raise SuiteError(f"{path}: over {MAX_SUITE_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not UTF-8 (byte {error.start})") from None
    lines = path.suffix in (".jsonl", ".ndjson")
    return (_parse_json_lines if lines else _parse_yaml)(path, text, service)


def _parse_yaml(path: Path, text: str, service: str | None) -> CanarySuite:
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _reject_duplicate_keys(path, node)
        tree = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, SuiteError):
            raise
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or str(error)
        raise SuiteError(f"{path}{where}: {why}") from None
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(tree, dict):
        raise SuiteError(f"{path}: a mapping with `service` and `questions` is needed")
    return _validate_suite(path, tree, service, lambda loc: _line_of_field(node, loc))


def _parse_json_lines(path: Path, text: str, service: str | None) -> CanarySuite:
    """Parse one question a line; a first line without `query` holds the rest of the suite."""
    tree: dict[str, Any] = {}
    questions: list[Any] = []
    at: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{path}:{number}: {error}") from None
        if isinstance(item, dict) and "query" not in item and not questions and not tree:
            tree = item
            continue
        questions.append(item)
        at.append(number)
    tree = {**tree, "questions": questions}

    def line_of(loc: _FieldLocation) -> int:
        if len(loc) > 1 and loc[0] == "questions" and isinstance(loc[1], int):
            return at[loc[1]]
        return 1

    return _validate_suite(path, tree, service, line_of)


def _validate_suite(
    path: Path, tree: dict[str, Any], service: str | None, line_of: Any
) -> CanarySuite:
    if service is not None:
        tree = {**tree, "service": service}
    try:
        return CanarySuite.model_validate(tree)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [
            f"{path}:{line_of(item['loc'])}: {_field_name(item['loc'])}"
            f"{item['msg'].removeprefix('Value error, ')}"
            for item in mistakes
        ]
        raise SuiteError(list_mistakes(lines)) from None


def _field_name(loc: _FieldLocation) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{text.removeprefix('.')}: " if text else ""


def _reject_duplicate_keys(path: Path, node: yaml.Node) -> None:
    """Raise for a key that is there twice; YAML itself silently uses the last one."""
    pending = [node]
    done = set[int]()
    while pending:
        current = pending.pop()
        if id(current) in done:
            continue
        done.add(id(current))
        if isinstance(current, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in current.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        where = f"{path}:{key.start_mark.line + 1}"
                        raise SuiteError(f"{where}: {key.value!r} is there twice")
                    seen.add(key.value)
                pending.append(value)
        elif isinstance(current, yaml.SequenceNode):
            pending += current.value


def _line_of_field(node: yaml.Node | None, loc: _FieldLocation) -> int:
    """Return the line of a field, or of the innermost node around it that exists."""
    line = 1
    for part in loc:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                    line = key.start_mark.line + 1
                    child = value
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            child = node.value[part]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
