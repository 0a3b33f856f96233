"""Fills in the templates. What comes from a submission can't become HTML or Markdown, whatever a template forgets."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from grading.reports import markdown

TEMPLATES = Path(__file__).parent / "templates"


def html(template: str, **values: object) -> bytes:
    """A page of HTML, in UTF-8."""
    return _html().get_template(template).render(values).encode("utf-8")


def marked_down(template: str, **values: object) -> bytes:
    """A page of Markdown, in UTF-8."""
    return _markdown().get_template(template).render(values).encode("utf-8")


@cache
def _html() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _markdown() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=False,  # Markdown's own escaping: `finalize` sees all that a template writes
        finalize=markdown.inline,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(code=markdown.code, fence=markdown.fence, linked=markdown.linked)
    return environment
