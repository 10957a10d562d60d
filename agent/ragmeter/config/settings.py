"""The root of the settings tree, with limits and the state file.

`ragmeter.config.loader` loads it; the configuration reference consists of these descriptions.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ragmeter.config.base import NameList, SettingsSection, check_distinct
from ragmeter.config.inputs import (
    HttpSettings,
    OtlpSettings,
    PrivacySettings,
    ResolverSettings,
)
from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.reporting import (
    AlertSettings,
    ResultsExportSettings,
)
from ragmeter.config.scoring import (
    CostSettings,
    HhemSettings,
    JudgeSettings,
    ModelSettings,
    SamplingSettings,
)
from ragmeter.core.durations import parse_window


class StateSettings(SettingsSection):
    """The files that outlive the process."""

    path: Path = Field(
        Path(".ragmeter/state.sqlite"),
        description=(
            "SQLite file of queue, windows and progress; what could not be read lies "
            "beside it, under its name with `.dead-letters.jsonl` after it"
        ),
    )

    @property
    def dead_letters(self) -> Path:
        """The file for what could not be read, beside the state file and named after it.

        It tells what was written before a crash, so no two agents may share it.
        """
        return Path(f"{self.path}.dead-letters.jsonl")


class LimitSettings(SettingsSection):
    """Bounds on input, memory and waiting."""

    body_bytes: int = Field(
        20 * 2**20, ge=1024, description="largest request body, also after decompression"
    )
    trace_bytes: int = Field(2 * 2**20, ge=1024, description="largest single trace")
    queue: int = Field(10_000, ge=1, description="traces waiting before HTTP answers 429")
    drawn: int = Field(
        5_000,
        ge=1,
        description="traces waiting for a judge or a model; beyond it they are shed",
    )
    services: int = Field(
        100,
        ge=1,
        description=(
            "services with series of their own. Beyond it a new one waits as `__other__` until it "
            "has had traffic in more minutes than another"
        ),
    )
    reserved: NameList = Field(
        [],
        description=(
            "names of services that always have series of their own, besides `limits.services`"
        ),
    )
    segment_values: int = Field(20, ge=1, description="values a segment tag may have per service")
    min_samples: int = Field(
        5, ge=1, description="fewer scored traces than this, effective ones too, show no gauge"
    )
    dedupe_hours: float = Field(
        48, gt=0, description="event-time hours in which the same trace id counts once"
    )
    drain_seconds: float = Field(10, gt=0, description="longest time to finish after SIGTERM")
    stalled_seconds: float = Field(
        120,
        gt=0,
        description=(
            "work waits and nothing moves for so long: exit 1; readiness is off after a quarter "
            "of it. With Kafka not below the 60 s that a rebalance may take"
        ),
    )


class Settings(SettingsSection, BaseSettings):
    """The configuration of the core; `ragmeter.app.settings` adds that of the parts."""

    # names in lists and maps are matched by case; the loader decodes what is JSON
    model_config = SettingsConfigDict(
        case_sensitive=True, enable_decoding=False, validate_default=False
    )

    windows: NameList = Field(
        ["5m", "1h", "24h"], min_length=1, description="rolling windows, 60s to 90d"
    )
    segments: NameList = Field(
        ["model", "prompt_version", "index_version"],
        description=(
            "tags that windows are also kept for; `model`, `prompt_version` and `answerable` "
            "count as tags"
        ),
    )
    builtin_scorers: bool = Field(
        True, description="score relevance, grounding and citations with the built-in scorers"
    )
    http: HttpSettings = HttpSettings()
    otlp: OtlpSettings = OtlpSettings()
    state: StateSettings = StateSettings()
    privacy: PrivacySettings = PrivacySettings()
    resolvers: ResolverSettings = ResolverSettings()
    sampling: SamplingSettings = SamplingSettings()
    costs: CostSettings = CostSettings()
    judge: JudgeSettings = JudgeSettings()
    hhem: HhemSettings = HhemSettings()
    models: ModelSettings = ModelSettings()
    alerts: AlertSettings = AlertSettings()
    kafka: KafkaSettings = KafkaSettings()
    results_export: ResultsExportSettings = ResultsExportSettings()
    limits: LimitSettings = LimitSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the arguments alone; `load_settings` passes its own sources."""
        return (init_settings,)

    @model_validator(mode="after")
    def _choose_model(self) -> Settings:
        if self.hhem.path is not None and self.models.path is not None:
            raise ValueError("hhem.path and models.path: the model tier has one model, set one")
        return self

    @field_validator("windows", mode="before")
    @classmethod
    def _no_seconds(cls, value: object) -> object:
        if isinstance(value, list) and any(type(one) in (int, float) for one in value):
            raise ValueError("each window is a length with its unit: 5m, 1h, 24h")
        return value

    @field_validator("windows")
    @classmethod
    def _sort_windows(cls, value: list[str]) -> list[str]:
        lengths: dict[int, str] = {}
        for name in check_distinct(sorted(value, key=parse_window)):
            before = lengths.setdefault(parse_window(name), name)
            if before != name:
                raise ValueError(f"{before} and {name} are one window")
        return list(lengths.values())

    @field_validator("segments")
    @classmethod
    def _name_tags(cls, value: list[str]) -> list[str]:
        if not all(name.strip() for name in value):
            raise ValueError("the name of a tag is needed")
        return check_distinct(value)
