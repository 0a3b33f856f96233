"""The lab is the one door to the learner's code: it imports on touch, and refuses what is not there."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from courses import make_course, solve, write

from coursekit import lab_modules
from coursekit.errors import CourseError
from coursekit.lab import Lab, active
from coursekit.paths import PACKAGES, Course


def run_python(course, code, *folders):
    """Run `code` in a fresh interpreter that finds the packages in `folders` first."""
    path = os.pathsep.join(str(folder) for folder in folders)
    environment = os.environ | {
        "PYTHONPATH": path,
        "TINY_LLM_ROOT": str(course.root),
        "TINY_LLM_BACKEND": "mlx",
    }
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )


def test_the_active_lab_is_the_one_of_this_run(lab):
    assert active() is lab


def test_a_view_shares_memory_with_its_storage_and_a_copy_does_not(lab):
    storage = lab.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert lab.shares_memory(storage, storage[:, 1:])
    assert lab.shares_memory(storage[:, :2], storage[:, 1:])
    assert not lab.shares_memory(storage[0], storage[1])
    assert not lab.shares_memory(storage, storage + 0)
    assert not lab.shares_memory(storage, storage[:, :0])


def test_modules_are_imported_when_touched_from_the_mlx_package_where_it_has_them(tmp_path):
    course = make_course(tmp_path)
    solve(course, "2.1", package="tiny_llm_mlx")
    write(course.solution() / "paged" / "__init__.py", "SIZE = 16\n")
    write(course.starter() / "paged" / "__init__.py", "SIZE = 16\n")
    write(course.starter() / "paged" / "pool.py", "def pages(): return 3\n")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from coursekit.lab import Lab\n"
        "lab = Lab('mlx')\n"
        "assert not any(name.startswith('tiny_llm') for name in sys.modules)\n"
        "print(Path(lab.counting.__file__).parent.name, list(lab.counting.count_up(3)))\n"
        "print(Path(lab.shapes.__file__).parent.name, lab.paged.SIZE, lab.paged.pool.pages())\n"
    )
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    ran = run_python(course, code, course.starter().parent)
    assert ran.stdout.splitlines() == ["tiny_llm_mlx [1, 2, 3]", "tiny_llm 16 3"], ran.stderr


def test_a_learners_lost_mlx_file_is_not_replaced_by_the_torch_one(tmp_path):
    course = make_course(tmp_path)
    (course.starter("tiny_llm_mlx") / "counting.py").unlink()
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    ran = run_python(course, "from coursekit.lab import Lab; Lab('mlx').counting", course.starter().parent)
    assert "ModuleNotFoundError: No module named 'tiny_llm_mlx.counting'" in ran.stderr


def test_mlx_that_is_not_installed_is_refused_with_the_way_to_get_it(tmp_path, monkeypatch):
    course = make_course(tmp_path)
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(CourseError, match=r"needs MLX.*pip install 'mlx\[cpu\]'.*none for Windows"):
        Lab("mlx", course=course)


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch):
    import torch

    course = make_course(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(CourseError, match=r"NVIDIA GPU.*--device cpu"):
        Lab("torch", "cuda", course)
    with pytest.raises(CourseError, match=r"Apple GPU.*--device cpu"):
        Lab("torch", "mps", course)


def test_mlx_does_not_run_on_cuda(tmp_path):
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    with pytest.raises(CourseError, match="not cuda"):
        Lab("mlx", "cuda", make_course(tmp_path))


def test_an_editor_finds_every_module_behind_the_lab():
    course, files = Course.find(), dict[Path, Path]()
    for package in map(course.solution, PACKAGES):
        for file in package.rglob("*.py"):
            # What both packages have is listed once, as the first's.
            files.setdefault(file.relative_to(package), file.relative_to(package.parent).with_suffix(""))
    there = {".".join(file.parts) for file in files.values() if file.name != "__init__"}
    tree = ast.parse(Path(lab_modules.__file__).read_bytes())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    listed = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    assert listed == there | {"__future__.annotations", "typing.TYPE_CHECKING"}
