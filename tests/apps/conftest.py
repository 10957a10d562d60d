"""The model server and the live ragmeter that real applications run beside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apps.model_server import Model, model_server
from tests.apps.running import Live, live_ragmeter, python


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with model_server() as server:
        yield server


@pytest.fixture(scope="module")
def ragmeter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    python()  # do not start one in vain
    with live_ragmeter(tmp_path_factory.mktemp("ragmeter")) as live:
        yield live
