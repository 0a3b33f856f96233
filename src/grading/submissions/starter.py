"""The fresh starter of the learner's packages."""

from __future__ import annotations

from coursekit.backends import Backend
from coursekit.editing.assembly import generate
from coursekit.manifest import Manifest
from coursekit.paths import Course
from grading.submissions.layout import Layout


def make_layouts(course: Course, manifest: Manifest, backend: Backend) -> tuple[Layout, ...]:
    """The packages that a learner of this backend writes: of MLX's, ``tiny_llm`` comes first, which it borrows from.

    They are made from the reference: the checkout's own ``src/tiny_llm`` is where an instructor tries things out, and
    a checkout need not be a git repository.

    Raises:
        CourseError: the reference can't be read.
    """
    packages = dict.fromkeys((Backend.TORCH.package, backend.package))
    layouts = []
    for package in packages:
        tasks = {ref.file for task in manifest.on(package).tasks() for ref in task.implements}
        starter = generate(course, package, manifest)
        layouts.append(Layout(package, starter, frozenset(tasks & starter.keys())))
    return tuple(layouts)
