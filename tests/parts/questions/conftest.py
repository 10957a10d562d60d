from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.once import made_once
from tests.parts.questions.labelled_answers import Numbers, labelled_answers


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> list[Numbers]:
    """The labelled answers of each set, which take the embedded model ten seconds to score."""

    def make(folder: Path) -> None:
        for number, rows in enumerate(labelled_answers().values()):
            np.save(folder / f"{number:02}.npy", rows)

    folder = made_once(tmp_path_factory, "labelled_answers", make)
    return [np.load(path) for path in sorted(folder.iterdir())]
