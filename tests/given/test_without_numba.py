"""A model whose run needs no compiled kernel never loads Numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from tiny_models import BLOCKS, random_model, write_gguf

# In a process of its own: other tests of this one have loaded Numba already. The last line shows that the question
# would be answered with yes where a kernel is imported.
RUN = """
import sys
from tiny_llm.generate import generate
from tiny_llm.kv_cache import FullKvCache
from tiny_llm.model import Transformer
from tiny_llm.weights import load_weights

weights = load_weights({path!r}, "float32", bits={bits}, matmul={matmul!r})
tokens = list(generate(Transformer(weights.config, weights), [1, 5, 3], 4, make_cache=FullKvCache))
print(len(tokens), "numba" in sys.modules)
import tiny_llm.fused_kv_cache
print("numba" in sys.modules)
"""


@pytest.mark.parametrize(("bits", "matmul"), [(None, "auto"), (4, "plain")])
def test_loading_and_generating_without_kernels_leaves_numba_out(
    tmp_path: Path, bits: int | None, matmul: str
) -> None:
    path = write_gguf(tmp_path / "model.gguf", random_model(BLOCKS), GGMLQuantizationType.Q4_1)
    run = RUN.format(path=str(path), bits=bits, matmul=matmul)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{run}"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4", "False", "True"]
