"""What a measurement was made on: without it, the numbers say little."""

from __future__ import annotations

import os
import platform
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Cores, vector extensions, versions, threads, and how busy the machine is (None where it does not tell)."""
    import torch

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "vector": _vector_extensions(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load": None if load is None else round(load, 2),
    }


def _vector_extensions() -> str:
    import torch

    names = [torch.backends.cpu.get_cpu_capability()]
    if platform.machine() in ("x86_64", "AMD64"):
        found = torch.cpu.get_capabilities()
        names += [name for key, name in (("avx512_bf16", "bfloat16"), ("amx_bf16", "AMX")) if found.get(key)]
    return " + ".join(names)


def machine_line(machine: dict[str, Any]) -> str:
    """The description in one line; with the GPU, where it says which one was measured."""
    line = (
        f"{machine['system']} {machine['machine']} · {machine['cores']} cores · {machine['vector']} · "
        f"torch {machine['torch']} · {machine['threads']} threads"
    )
    return f"{line} · {machine['gpu']}" if "gpu" in machine else line


def busy(machine: dict[str, Any]) -> bool:
    """Whether other programs keep more than half a core busy already."""
    return machine["load"] is not None and machine["load"] > 0.5
