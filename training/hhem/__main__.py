"""Fetch, convert and check the published HHEM, in a clone with `make setup` (docs/grounding.md).

python -m training.hhem fetch [--out DIR] [--base-url URL]
python -m training.hhem convert DIR [--out DIR] [--int8]
python -m training.hhem check DIR
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from ragmeter.cli.options import exit_on_error
from ragmeter.console.streams import exit_error, print_message

from training.hhem import convert, download

app = typer.Typer(help="Fetch, convert and check the published HHEM.", no_args_is_help=True)

# in the current directory: the checkpoint may be read-only or shared
_CONVERTED = Path("hhem-onnx")


@app.command("fetch")
def fetch_model(
    out: Annotated[Path, typer.Option(help="Folder to download to.")] = Path("hhem"),
    base_url: Annotated[
        str, typer.Option(envvar="HF_ENDPOINT", help="A mirror of the model hub.")
    ] = download.HUB_URL,
) -> None:
    """Download the published model at its pinned revision, or say how to get it by hand."""
    with exit_on_error(model=""):
        download.fetch_model(out, print_message, base_url or download.HUB_URL)
    print_message(f"next: python -m training.hhem convert {out}")


@app.command("convert")
def convert_model(
    folder: Annotated[Path, typer.Argument(help="Folder with model.safetensors, tokenizer.json.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = _CONVERTED,
    int8: Annotated[
        bool, typer.Option("--int8", help="Make the quantised graph as well: faster, less exact.")
    ] = False,
) -> None:
    """Build the ONNX graph from the published checkpoint."""
    if out == _CONVERTED and out.resolve().is_relative_to(folder.resolve()):
        raise exit_error(
            f"{out} would be in the folder of the checkpoint: name another by --out", 2
        )
    with exit_on_error(model=""):
        manifest = convert.convert_checkpoint(folder, out, int8=int8)
    print_message(f"converted to {out}; fingerprint {manifest.fingerprint(False)}")
    if int8:
        print_message(f"quantised as well; fingerprint {manifest.fingerprint(True)}")


@app.command("check")
def check_model(
    folder: Annotated[Path, typer.Argument(help="Folder of the converted model.")],
) -> None:
    """Compare the scores of HHEM's model card with the model's; exit with 1 if they differ."""
    with exit_on_error(model=""):
        result = convert.check_conversion(folder)
    for line in convert.format_check(result):
        typer.echo(line)
    if not result.passed:
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="python -m training.hhem")
