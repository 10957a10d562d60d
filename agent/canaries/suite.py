"""The canary suite: its model, and the reader of YAML and JSON Lines suite files.

A suite: questions with their references, how the service is asked, and what its replies mean.

A mistake in it names the file, the line and the field. A field that is not known is one: a check
that is never made because of a slip would pass for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ragmeter.canaries.templates import JsonPath
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import REFERENCE_SCORER
from ragmeter.metrics.canary.checks import validate_pattern
from ragmeter.metrics.registry import metric_specs
from ragmeter.trace import Calculation, FactCheck, Id, Message, Reference, Support, Tags

MAX_QUESTIONS = 10_000
MAX_QUESTION_CHARS = 100_000  # characters of a question

_NESTED: dict[str, type[BaseModel]] = {
    "supports": Support,
    "checks": FactCheck,
    "calculation": Calculation,
}


class _StrictSuiteModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RequestTemplate(_StrictSuiteModel):
    """How a question is asked. `{{query}}`, `{{id}}`, `{{history}}` and `{{vars.NAME}}` stand for
    what the question says; in headers `{{env.NAME}}` for a variable of the environment."""

    method: Annotated[str, Field(pattern=r"^(GET|POST|PUT)$")] = "POST"
    headers: dict[str, str] = {}
    params: dict[str, str] = Field(default={}, description="of the URL's query")
    body: Any = Field(
        default={"query": "{{query}}"}, description="sent as JSON; a text as it is; none with GET"
    )


class PassagePaths(_StrictSuiteModel):
    """Where the parts of a passage stand in it. A passage may be a text as well."""

    id: JsonPath = "id"
    text: JsonPath = "text"
    score: JsonPath = "score"
    metadata: JsonPath = "metadata"
    rel_path: JsonPath | None = None
    heading_path: JsonPath | None = None


class CitationPaths(_StrictSuiteModel):
    """Where the parts of a citation stand in it. A citation may be a passage's id as well."""

    passage_id: JsonPath = "passage_id"
    start: JsonPath = "start"
    end: JsonPath = "end"


class ReplyPaths(_StrictSuiteModel):
    """Where the parts of the answer stand in the reply: `data.answer`, `choices[0].text`, or a JSON
    pointer `/data/answer`; `$` is the whole. Only `answer` must be there."""

    answer: JsonPath = "answer"
    passages: JsonPath | None = "passages"
    passage: PassagePaths = PassagePaths()
    citations: JsonPath | None = "citations"
    citation: CitationPaths = CitationPaths()
    abstained: JsonPath | None = "abstained"
    model: JsonPath | None = "model"
    prompt_version: JsonPath | None = "prompt_version"


class CanaryQuestion(_StrictSuiteModel):
    """One canary. `required`: a run fails where it does not pass."""

    id: Id = ""
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
    history: list[Message] | None = None
    vars: dict[str, Any] = {}
    tags: Tags = {}
    required: bool = True
    expect: dict[str, float] = Field(
        default={}, description="the least value of a metric (the most where lower is better)"
    )
    reference: Reference

    @model_validator(mode="before")
    @classmethod
    def _with_id(cls, data: Any) -> Any:
        """Without an id the question is known by its text, wherever it stands in the suite."""
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

    @field_validator("expect")
    @classmethod
    def _known_metrics(cls, expect: dict[str, float]) -> dict[str, float]:
        return _check_expected_metrics(expect)


class CanarySuite(_StrictSuiteModel):
    """`name` and the tags go with every trace, as does `question`, the id."""

    service: Id
    name: Annotated[str, Field(max_length=200)] = ""
    tags: Tags = {}
    request: RequestTemplate = RequestTemplate()
    response: ReplyPaths = ReplyPaths()
    expect: dict[str, float] = Field(default={}, description="as of a question, for all of them")
    questions: Annotated[list[CanaryQuestion], Field(min_length=1, max_length=MAX_QUESTIONS)]

    @field_validator("expect")
    @classmethod
    def _known_metrics(cls, expect: dict[str, float]) -> dict[str, float]:
        return _check_expected_metrics(expect)

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


def _check_expected_metrics(expect: dict[str, float]) -> dict[str, float]:
    for name in expect:
        spec = metric_specs().get(base_name(name))
        if spec is None or REFERENCE_SCORER not in spec.scorers or spec.good is None:
            raise ValueError(f"{name!r} is no metric of canaries")
        if bool(spec.labels) != (":" in name):
            example = f"{base_name(name)}:5" if spec.labels else base_name(name)
            raise ValueError(f"{name!r}: write {example!r}")
    return expect


MAX_SUITE_BYTES = 32 * 2**20
MAX_SHOWN_MISTAKES = 10  # mistakes; the rest are counted

_FieldLocation = Sequence[int | str]


class SuiteError(ValueError):
    """What is wrong with a suite: a line for each mistake, with file, line and field."""


def read_suite(path: Path, service: str | None = None) -> CanarySuite:
    """`service` stands for the one that the file does not name. Raises OSError and `SuiteError`."""
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
    """A question a line; a first line without `query` holds the rest of the suite."""
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
        found = error.errors(include_url=False, include_context=False, include_input=False)
        shown = [
            f"{path}:{line_of(item['loc'])}: {_field_name(item['loc'])}"
            f"{item['msg'].removeprefix('Value error, ')}"
            for item in found[:MAX_SHOWN_MISTAKES]
        ]
        if len(found) > MAX_SHOWN_MISTAKES:
            shown.append(f"and {len(found) - MAX_SHOWN_MISTAKES} more")
        raise SuiteError("\n".join(shown)) from None


def _field_name(loc: _FieldLocation) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{text.removeprefix('.')}: " if text else ""


def _reject_duplicate_keys(path: Path, node: yaml.Node) -> None:
    """YAML takes the last of two equal keys, in silence."""
    todo, done = [node], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in done:
            continue
        done.add(id(one))
        if isinstance(one, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in one.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        where = f"{path}:{key.start_mark.line + 1}"
                        raise SuiteError(f"{where}: {key.value!r} is there twice")
                    seen.add(key.value)
                todo.append(value)
        elif isinstance(one, yaml.SequenceNode):
            todo += one.value


def _line_of_field(node: yaml.Node | None, loc: _FieldLocation) -> int:
    """The line of a field, or of the nearest thing around it that is there."""
    line = 1
    for part in loc:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                    line, found = key.start_mark.line + 1, value
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            found = node.value[part]
            line = found.start_mark.line + 1
        if found is None:
            break
        node = found
    return line
