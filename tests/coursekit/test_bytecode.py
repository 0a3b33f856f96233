"""Where Python is forbidden to write bytecode, the commands keep it in the user's cache folder."""

import subprocess
import sys
from pathlib import Path

import pytest
from courses import make_course
from runs import environment

from coursekit import bytecode
from tiny_llm.cache_folder import CACHE_VARIABLE, cache_folder


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


@pytest.mark.parametrize("named", [False, True], ids=["the user's folder", "a folder is named"])
def test_bytecode_lies_in_the_folder_where_the_package_keeps_its_weights(tmp_path, monkeypatch, named):
    """Each of the two has the rule, since neither may import the other."""
    assert bytecode.CACHE == CACHE_VARIABLE
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache") if named else "")
    monkeypatch.setenv(bytecode.FORBIDDEN, "1")
    monkeypatch.setenv(bytecode.FOLDER, "")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    bytecode.keep_bytecode()
    assert Path(str(sys.pycache_prefix)) == cache_folder() / "bytecode"
