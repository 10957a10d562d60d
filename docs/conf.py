"""Sphinx configuration of the documentation site: `make docs` builds it into dist/docs.

The pages are plain Markdown that a repository browser shows as well, so nothing in them is Sphinx's
own: the groups of the sidebar are read from the index page, and links that leave docs/ lead to the
repository.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
REPOSITORY = "https://github.com/ragmeter/ragmeter"

project = "ragmeter"
html_title = "ragmeter"
extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["conf.py"]
nitpicky = True  # with -W a dead link is an error

# The anchors that a repository browser makes of headings, to the deepest level.
myst_heading_anchors = 6
# Prose that starts a heading level late is no mistake: merged parts keep their own levels.
suppress_warnings = ["myst.header"]

html_theme = "furo"  # system fonts, no scripts from elsewhere
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}
html_show_copyright = False
html_copy_source = False
highlight_language = "none"  # blocks without a language are output and drawings

_LINK = re.compile(r"\]\((\.\./[^)\s]*)\)")


def contents() -> str:
    """Return the tables of contents that the index page implies: a group for each heading."""
    index = (DOCS / "README.md").read_text("utf-8")
    parts = []
    for group in index.split("\n## ")[1:]:
        title, _, rows = group.partition("\n")
        pages = dict.fromkeys(re.findall(r"^\| \[[^\]]+\]\(([\w/-]+)\.md\)", rows, re.MULTILINE))
        parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", *pages, "```"]))
    return "\n\n".join(parts)


def adapt_page(app: Any, page: str, source: list[str]) -> None:
    """Turn links that leave docs/ into links to the repository, and add the tables of contents."""

    def absolute(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), match[1]))
        outside = not path.startswith("docs/")
        return f"]({REPOSITORY}/blob/main/{path})" if outside else match[0]

    source[0] = _LINK.sub(absolute, source[0])
    if page == root_doc:
        source[0] += f"\n\n{contents()}\n"
    elif page == "runbooks/README":
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
    elif page.startswith("decisions/"):  # reached from the page that the decision is of
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"


def add_indexes(app: Any, failure: Exception | None) -> None:
    """Let the folders open: a server looks for index.html where a repository shows README."""
    for page in Path(app.outdir).rglob("README.html"):
        shutil.copyfile(page, page.with_name("index.html"))


def setup(app: Any) -> None:
    app.connect("source-read", adapt_page)
    app.connect("build-finished", add_indexes)
