"""The image's files, as far as that can be seen without an engine: see docs/deployment.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from ragmeter.app.settings import load_settings

from deploy.supply.sbom import VARIANTS, requirements
from deploy.supply.tools import exported
from tests.deploy.commands import check
from tests.deploy.dockerfile import DOCKERFILE, stages
from tests.deploy.tools import ROOT, python_of_tools

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMAGES = {"build": "ragmeter", "build-kafka": "ragmeter-kafka"}
"""Stages of the Dockerfile, and the image whose contents each installs."""


def pins(text: str) -> dict[str, set[str]]:
    """Of a list of requirements: versions by name; several where they depend on the platform."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE):
        found.setdefault(package, set()).add(version)
    return found


def contents() -> list[dict[str, set[str]]]:
    """What each image holds: the small one, and Kafka's."""
    return [pins(requirements(name)) for name in IMAGES.values()]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line)[0].lower() for line in requirements}


@pytest.mark.real
def test_hadolint_finds_nothing() -> None:
    hadolint = python_of_tools().with_name("hadolint")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "")


def test_context_has_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {line[1:] for line in rules if line.startswith("!")}
    copied = {
        source
        for stage in stages().values()
        for step in stage.all("COPY")
        if not step.startswith("--from=")
        for source in step.split()[:-1]
    }
    assert let_in == copied
    assert all((ROOT / source).exists() for source in copied)


def test_default_variant_is_the_small_one() -> None:
    assert list(stages())[-1] == "slim"
    variants = {"slim": "build", "kafka": "build-kafka"}
    assert set(variants) <= set(stages())
    for name, source in variants.items():
        assert stages()[name].base == "runtime"
        assert stages()[name].all("COPY") == [f"--from={source} /opt/ragmeter /opt/ragmeter"]


def test_runs_as_a_numbered_user_and_not_as_root() -> None:
    runtime = stages()["runtime"]
    assert runtime.all("USER") == ["10001:10001"]
    kinds = [kind for kind, _ in runtime.steps]
    assert "RUN" not in kinds[kinds.index("USER") :]
    assert runtime.last("VOLUME") == ["/var/lib/ragmeter"]


def test_every_variable_of_a_command_is_set_where_it_is_used() -> None:
    """An ARG ends with its stage in some engines; an ENV is part of what the next is built on."""
    for stage in stages().values():
        known = {word.split("=")[0] for text in stage.all("ARG") for word in text.split()}
        above: str | None = stage.name
        while above in stages():
            settings = " ".join(stages()[above].all("ENV"))
            known |= set(re.findall(r"(\w+)=", settings))
            above = stages()[above].base
        used = {name for text in stage.all("RUN") for name in re.findall(r"\$\{?(\w+)", text)}
        assert used <= known, stage.name
    assert "PREFIX=/opt/ragmeter" in stages()["build"].all("ENV")


def test_its_command_is_one_of_ours() -> None:
    runtime = stages()["runtime"]
    (entry,) = runtime.last("ENTRYPOINT")
    assert entry in PROJECT["scripts"]
    check(runtime.last("CMD"))
    config = runtime.last("CMD")[-1]
    assert f"deploy/container.yaml {config}" in runtime.all("COPY")


def test_settings_of_the_image(tmp_path: Path) -> None:
    settings = load_settings(ROOT / "deploy" / "container.yaml", environ={})
    assert settings.http.host == "0.0.0.0"
    for path in (settings.state.path, settings.state.dead_letters):
        assert path.parent == Path("/var/lib/ragmeter")
    runtime = stages()["runtime"]
    ports = [str(settings.http.otlp_port), str(settings.http.metrics_port)]
    assert runtime.all("EXPOSE") == [" ".join(ports)]
    assert f"127.0.0.1:{settings.http.metrics_port}/healthz" in runtime.all("HEALTHCHECK")[0]


def test_no_setting_is_fixed_by_the_environment() -> None:
    """It would win over the file that somebody mounts."""
    for stage in stages().values():
        assert "RAGMETER_" not in " ".join(stage.all("ENV"))


def test_labels_and_versions() -> None:
    runtime = stages()["runtime"]
    labels = dict(
        re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', runtime.all("LABEL")[0])
    )
    assert labels["licenses"] == PROJECT["license"]
    assert {"title", "description", "version", "revision"} <= set(labels)
    assert f"VERSION={PROJECT['version']}" in runtime.all("ARG")
    tags = re.findall(r"ragmeter:([\d.]+)", DOCKERFILE.read_text(encoding="utf-8"))
    assert set(tags) == {PROJECT["version"]}


def test_every_installation_is_held_to_the_hashes() -> None:
    commands = [
        command
        for stage in stages().values()
        for step in stage.all("RUN")
        for command in step.split("&&")
    ]
    installs = [one for one in commands if re.search(r"\bpip install |\buv sync ", one)]
    assert len(installs) == 5
    ours = [command for command in installs if "dist/ragmeter-" in command]
    assert [("--no-deps" in command) for command in ours] == [True]
    for command in set(installs) - set(ours):
        if "uv sync" in command:
            assert "--locked" in command
            assert "--no-build " in command
        else:
            assert "--require-hashes" in command
            assert "--only-binary :all:" in command


def test_locks_hold_what_the_project_needs() -> None:
    extras = PROJECT["optional-dependencies"]
    small, kafka = contents()
    assert names(PROJECT["dependencies"]) <= set(small)
    assert names(extras["kafka"]) <= set(kafka)
    assert names(extras["model"]) <= set(small)
    assert small.items() <= kafka.items()


OF_FAUST = {"faust-streaming", "mode-streaming", "terminaltables", "venusian", "colorlog"}


def test_the_image_without_kafka_carries_nothing_of_faust() -> None:
    small, kafka = map(set, contents())
    assert kafka >= OF_FAUST
    assert not (OF_FAUST | names(PROJECT["optional-dependencies"]["kafka"])) & small
    for stage, image in IMAGES.items():
        (step,) = [one for one in stages()[stage].all("RUN") if "--no-dev" in one]
        assert tuple(sorted(re.findall(r"--extra (\w+)", step))) == tuple(sorted(VARIANTS[image]))


def test_the_agent_runs_without_what_the_small_image_lacks() -> None:
    small, kafka = contents()
    lacking = set(kafka) - set(small)
    code = (
        "import sys, importlib.metadata as m\n"
        "found, lacking = m.packages_distributions().items(), set(sys.argv[1:])\n"
        # importing one of them raises
        "sys.modules.update((name, None) for name, of in found if set(of) <= lacking)\n"
        "from ragmeter.cli.main import app\n"
        "import typer.main, ragmeter.app.embedded_agent, ragmeter.scoring.slow_tiers\n"
        "list(typer.main.get_command(app).commands.values())\n"  # imports them all
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *sorted(lacking)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_shipped_is_what_is_tested() -> None:
    tested = pins(exported("--all-extras"))
    for found in (pins(exported("--only-group", "build")), *contents()):
        assert {one: v for one, v in found.items() if not v <= tested.get(one, set())} == {}


def test_grace_and_tags_of_the_chart_are_those_of_the_image() -> None:
    values = yaml.safe_load((ROOT / "helm/ragmeter/values.yaml").read_text(encoding="utf-8"))
    user = stages()["runtime"].all("USER")[0].split(":")
    for context in (values["securityContext"], values["podSecurityContext"]):
        assert [str(context["runAsUser"]), str(context["runAsGroup"])] == user
