"""Reports as a page and as a picture."""

from exporters.report.page import page
from exporters.report.png import NoLibrary, picture

__all__ = ["NoLibrary", "page", "picture"]
