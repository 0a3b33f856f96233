"""Where Python is forbidden to write bytecode, the commands keep it in the user's cache folder."""

import subprocess
import sys

import pytest
from courses import make_course
from runs import environment


@pytest.mark.parametrize("named", [False, True], ids=["left open", "a folder is named"])
def test_bytecode_goes_to_the_cache_unless_the_environment_names_a_folder(tmp_path, named):
    course = make_course(tmp_path / "course")
    variables = environment(course) | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "TINY_LLM_CACHE": str(tmp_path / "cache"),
    }
    variables["PYTHONPYCACHEPREFIX"] = str(tmp_path / "named") if named else ""
    command = [sys.executable, "-m", "coursekit", "progress"]
    subprocess.run(command, cwd=course.root, env=variables, check=True, capture_output=True, timeout=60)
    assert any((tmp_path / "cache").rglob("*.pyc")) != named
    assert not (tmp_path / "named").exists()
    assert not any(course.root.rglob("*.pyc"))
