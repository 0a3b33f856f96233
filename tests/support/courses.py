"""A tiny course in a temporary folder, for the tests of the tool: two files, three days, two weeks.

`make_course(tmp_path)` writes reference, lessons, tests and an untouched starter, and returns the `Course`.
`solve(course, "1.1", "1.2.1")` puts the reference's code into the learner's package for those days or tasks.
"""

from __future__ import annotations

from pathlib import Path

from coursekit.editing.assembly import assemble
from coursekit.manifest import load_manifest
from coursekit.paths import Course

REAL = Path(__file__).parents[2] / "solutions" / "tiny_llm"

SHAPES = '''"""Areas and perimeters."""

from __future__ import annotations

import math
from typing import NamedTuple

TURN = 2 * math.pi


class Size(NamedTuple):
    """Width and height, in metres."""

    width: float
    height: float


def area(size: Size) -> float:
    """The area of a rectangle, in square metres."""
    # width times height
    return size.width * size.height  # metres squared


def perimeter(size: Size) -> float:
    """The length around a rectangle, in metres."""
    return 2 * (size.width + size.height)


# Circles come last.
class Circle:
    """A circle of a given radius, in metres."""

    def __init__(self, radius: float) -> None:
        self.radius = radius

    @property
    def area(self) -> float:
        """The area, in square metres."""
        return TURN / 2 * square(self.radius)

    def __call__(
        self,
        angle: float,
    ) -> tuple[float, float]:  # x, y
        x = self.radius * math.cos(angle)
        y = self.radius * math.sin(angle)
        return x, y


def square(x: float) -> float:
    """Given."""
    return x * x
'''

COUNTING = '''"""Numbers, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

STEP = 1


def count_up(last: int) -> Iterator[int]:
    """The whole numbers from 1 to `last`."""
    number = 1
    while number <= last:
        yield number
        number += STEP


def total(last: int) -> int:
    """Their sum."""
    return sum(count_up(last))
'''

COUNTING_MLX = '''"""Numbers, one after the other; the second track."""

from __future__ import annotations

from collections.abc import Iterator


def count_up(last: int) -> Iterator[int]:
    """The whole numbers from 1 to `last`."""
    yield from range(1, last + 1)
'''

LESSONS = {
    "week_1/day_1": """title = "Rectangles"
goal = "Measure rectangles."
chapter = "week_1/day_1.md"

[[task]]
id = "task_1"
title = "Area"
points = 10
implements = ["shapes.py::area"]
hints = ["Look at Size.", "Width times height.", "`return size.width * size.height`"]

[[task]]
id = "task_2"
title = "Perimeter"
points = 5
implements = ["shapes.py::perimeter"]
hints = ["Look at Size.", "All four sides.", "`return 2 * (size.width + size.height)`"]
""",
    "week_1/day_2": """title = "Circles"
goal = "Measure circles."
chapter = "week_1/day_2.md"
stage = "S0 round"

[[task]]
id = "task_1"
title = "A circle"
points = 20
implements = ["shapes.py::Circle.area", "shapes.py::Circle.__call__"]
hints = ["Look at TURN.", "Half a turn times the radius squared.", "`return TURN / 2 * square(self.radius)`"]
""",
    "week_2/day_1": """title = "Counting"
goal = "Count, then add up."
chapter = "week_2/day_1.md"

[[task]]
id = "task_1"
title = "Counting up"
points = 10
implements = ["counting.py::count_up"]
hints = ["A generator.", "A loop that yields.", "`while number <= last: …`"]

[[task]]
id = "task_2"
title = "A sum"
points = 15
implements = ["counting.py::total"]
hints = ["Use the first task.", "Add up what it yields.", "`return sum(count_up(last))`"]
""",
}

TESTS = {
    "week_1/test_day_1.py": """def test_task_1_multiplies_width_by_height(lab):
    assert lab.shapes.area(lab.shapes.Size(2, 3)) == 6


def test_task_2_goes_all_the_way_round(lab):
    assert lab.shapes.perimeter(lab.shapes.Size(2, 3)) == 10
""",
    "week_1/test_day_2.py": """import math


def test_task_1_has_the_area_of_a_circle(lab):
    assert math.isclose(lab.shapes.Circle(2.0).area, 4 * math.pi)


def test_task_1_starts_on_the_x_axis(lab):
    assert lab.shapes.Circle(2.0)(0.0) == (2.0, 0.0)
""",
    "week_2/test_day_1.py": """def test_task_1_counts_from_one(lab):
    assert list(lab.counting.count_up(3)) == [1, 2, 3]


def test_task_2_adds_up(lab):
    assert lab.counting.total(4) == 10
""",
}


def make_course(folder: Path) -> Course:
    """Write the tiny course into `folder`, starter included; the learner has done nothing yet."""
    course = Course(folder)
    write(folder / "pyproject.toml", '[project]\nname = "tiny-course"\nversion = "0"\n')
    write_solution(course, "__init__.py", (REAL / "__init__.py").read_text(encoding="utf-8"))
    write_solution(course, "shapes.py", SHAPES)
    write_solution(course, "counting.py", COUNTING)
    write_solution(course, "__init__.py", "", "tiny_llm_mlx")
    write_solution(course, "counting.py", COUNTING_MLX, "tiny_llm_mlx")
    for name, text in LESSONS.items():
        write(course.lessons / name / "lesson.toml", text)
    for name, text in TESTS.items():
        write(course.tests / name, text)
    for week in ("week_1", "week_2"):  # packages, so that both may hold a test_day_1.py
        write(course.tests / week / "__init__.py", "")
    for package in ("tiny_llm", "tiny_llm_mlx"):
        write_package(course, package, ())
    return course


def write_solution(course: Course, file: str, text: str, package: str = "tiny_llm") -> None:
    write(course.solution(package) / file, text)


def write_package(course: Course, package: str, solved: tuple[str, ...]) -> None:
    """Make the learner's package anew: solved in the days and tasks named, stubs elsewhere."""
    manifest = load_manifest(course)
    names = [name for name in solved if name.count(".") == 2]
    names += [task.name for name in solved if name.count(".") == 1 for task in manifest.lesson(name).tasks]
    refs = {ref for name in names for ref in manifest.task(name).implements}
    for file, content in assemble(course, manifest, package, refs).items():
        path = course.starter(package) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def solve(course: Course, *names: str, package: str = "tiny_llm") -> None:
    """Put the reference's code into the learner's package for these days ("1.1") or tasks ("1.1.2")."""
    write_package(course, package, names)


def learner_text(course: Course, file: str, package: str = "tiny_llm") -> str:
    return (course.starter(package) / file).read_bytes().decode("utf-8")


def write(path: Path, text: str) -> None:
    """Write a text byte for byte, making the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
