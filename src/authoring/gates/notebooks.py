"""Gate: every day has its notebook, made from its text, with the outputs that the reference gives."""

from __future__ import annotations

from authoring.gates.gate import Context, Findings
from authoring.notebooks.command import check_notebooks
from authoring.progress import count


def notebooks(context: Context) -> Findings:
    """Run every notebook on the reference, with short measurements."""
    problems = check_notebooks(context.course, context.lessons, context.console, context.workers)
    return Findings(count(len(context.lessons), "notebook"), problems)
