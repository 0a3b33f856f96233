"""With MLX, too, the way to attend over pages is chosen by name, and by what the machine has."""

from __future__ import annotations

import pytest
from test_mlx_quantized import start

KERNELS = {"metal": "paged_attention_metal", "metal-tiles": "paged_attention_tiles"}
REFUSED = {
    name: f"the {name} way to attend is a kernel, and there is no compiler here; choose reference"
    for name in KERNELS
}


@pytest.mark.parametrize(
    ("machine", "auto", "kernels"),
    [
        ("gpu", "paged_attention_metal", KERNELS),
        ("compiler", "paged_attention", KERNELS),
        ("bare", "paged_attention", REFUSED),
    ],
)
def test_the_name_and_the_machine_decide(machine, auto, kernels):
    done = start("attend", machine)
    assert done.returncode == 0, done.stderr
    unknown = "with MLX there is no way 'cpu' to attend; choose one of: auto, reference, metal, metal-tiles"
    wanted = {"auto": auto, "reference": "paged_attention", **kernels, "cpu": unknown}
    assert dict(line.split(": ", 1) for line in done.stdout.splitlines()) == wanted
