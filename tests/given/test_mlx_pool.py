"""MLX's pool of pages: its memory is taken when it is made, layer by layer."""

from __future__ import annotations

import json
from pathlib import Path

from test_mlx_quantized import start


def test_a_new_pool_has_all_its_memory_and_holds_zeros(tmp_path: Path) -> None:
    out = tmp_path / "pool.json"
    done = start("pool", out)
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text(encoding="utf-8"))
    nbytes = 2 * 2 * 5 * 3 * 7 * 4 * 2
    assert told["layers"] == [2, 2]
    assert told["shapes"] == [[5, 3, 7, 4]] * 4
    assert told["dtypes"] == ["mlx.core.bfloat16"] * 4
    assert told["zero"] is True
    assert told["sizes"] == [5, 3, nbytes]
    assert told["taken"] >= nbytes, "the memory is taken later, when the first tokens come"
