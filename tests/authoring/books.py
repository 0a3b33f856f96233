"""A small book in a temporary folder, with lessons of one day and two tasks, for the tests of the book's tools."""

from __future__ import annotations

import shutil
from pathlib import Path

from coursekit.manifest import FunctionRef, Lesson, Manifest, Task
from coursekit.paths import Course

HINTS = ("Look.", "Think.", "Write.")
TASKS = (
    Task(1, 3, 1, "task_1", "The `causal` mask", 15, (FunctionRef("attention.py", "causal_mask"),), HINTS),
    Task(
        1,
        3,
        2,
        "task_2",
        "Queries & <groups>",
        1,
        (FunctionRef("attention.py", "grouped"), FunctionRef("layers.py", "MLP.__call__")),
        HINTS,
    ),
)
LESSON = Lesson(1, 3, "Masks", "Hide the `future`.", "week_1/day_3.md", TASKS, Path("lesson.toml"))
MANIFEST = Manifest((LESSON,))

CHAPTER = """# Day 1.3: Masks

{{#day 1.3}}

Words before the [first task](#task-1-3-1), as [the notation](../notation.md#sizes) says.

{{#task 1.3.1}}

{{#task 1.3.2}}

![A mask](../figures/week_1_day_3.svg "The mask of three of five.")

```python
print(1 + 1)
```

```output
2
```
"""
PAGES = {
    "SUMMARY.md": "# Summary\n\n[Notation](notation.md)\n\n- [1.3 Masks](week_1/day_3.md)\n",
    "notation.md": "# Notation\n\n## Sizes\n\nB rows.\n",
    "week_1/day_3.md": CHAPTER,
}


def make_book(root: Path, **pages: str) -> Course:
    """Write the book above under `root`; `pages` replace some of it, by the name without folder and `.md`."""
    course = Course(root)
    for name, text in PAGES.items():
        path = course.book / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages.get(path.stem, text), encoding="utf-8")
    (root / "README.md").write_text(pages.get("README", "# A course\n"), encoding="utf-8")
    shutil.copy(Course.find().root / "pyproject.toml", root / "pyproject.toml")
    for folder in ("lessons", "solutions", "book/figures", "book/src/figures"):
        (root / folder).mkdir(parents=True)
    (course.book / "figures" / "week_1_day_3.py").write_text('"""A mask."""\n', encoding="utf-8")
    (course.book / "src" / "figures" / "week_1_day_3.svg").write_text("<svg/>\n", encoding="utf-8")
    return course
