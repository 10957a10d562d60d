"""`python -m tests.notebook [COPY]`: executes examples/notebook.ipynb and writes what it shows
into it, or into a copy.

Without a kernel: the cells are plain Python, run one after another in one namespace.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"
DATA = ("mtrag.jsonl", "mtrag-labels.jsonl")


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def execute(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell, run in a folder that gets the data."""
    import_module("matplotlib").use("agg")
    pyplot = import_module("matplotlib.pyplot")

    for name in DATA:
        shutil.copyfile(NOTEBOOK.parent / name, folder / name)
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    with contextlib.chdir(folder):
        for number, cell in enumerate(code_cells(notebook)):
            source = "".join(cell["source"])
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(source, f"cell {number}", "exec"), names)
            outputs: list[dict[str, Any]] = []
            if printed.getvalue():
                text = printed.getvalue().splitlines(keepends=True)
                outputs.append({"name": "stdout", "output_type": "stream", "text": text})
            for figure in map(pyplot.figure, pyplot.get_fignums()):
                image = io.BytesIO()
                figure.savefig(image, format="png", metadata={"Software": None})
                data = {"image/png": base64.b64encode(image.getvalue()).decode("ascii")}
                outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
            pyplot.close("all")
            found.append(outputs)
    return found


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        shown = execute(notebook, Path(folder))
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), shown, strict=True), 1):
        cell["outputs"], cell["execution_count"] = outputs, number
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    output = Path(sys.argv[1]) if sys.argv[1:] else NOTEBOOK
    output.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
