"""Run as a program of its own, with TRITON_INTERPRET=0: compiles the learner's kernels for a GPU; none is needed.

Prints one line of JSON: of each kernel the dtypes of its products and the matrix instructions, or what the compiler
says and about which line.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from typing import Any

ARCHITECTURE = 90
CONSTANTS = {"P": 16, "D": 24, "WIDTH": 32, "ROWS": 16, "TILE": 64, "PART": 512, "causal": True}
INTEGERS = ("table", "tables", "starts", "kv_lens", "positions", "wanted")
PRODUCT = re.compile(r"= tt\.dot .* : tensor<\d+x\d+x(\w+)> \*")
MATRIX = re.compile(r"\bw?g?mma\.\S*(?:sync|mma_async)\S*")


def main() -> None:
    """Compile all, and print what came of it."""
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    try:
        subprocess.run([get_ptxas(ARCHITECTURE).path, "--version"], check=True, capture_output=True)
    except Exception as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}))
        return
    import tiny_llm.kernels.paged_attention_triton as learners

    kernels = importlib.import_module("beside_triton_kernels")
    cases = {
        "load_tile": kernels.store_tile,
        "fold_scores": kernels.store_folded,
        "finish": kernels.store_finished,
        "attend_pages": learners.attend_pages,
    }
    found = {}
    for name, kernel in cases.items():
        dtype = "bf16" if name in ("load_tile", "attend_pages") else "fp32"
        try:
            compiled = compile_kernel(triton, kernel, dtype, getattr(learners, name))
        except Exception as error:
            found[name] = told(error)
        else:
            found[name] = {
                "products": PRODUCT.findall(compiled.asm["ttir"]),
                "instructions": sorted(set(MATRIX.findall(compiled.asm["ptx"]))),
            }
    print(json.dumps(found))


def compile_kernel(triton: Any, kernel: Any, dtype: str, function: Any) -> Any:
    """The kernel for tensors of `dtype`; the learner's `function` is the value of an argument of that name."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    parameters = list(inspect.signature(kernel.fn).parameters)
    constants = {name: CONSTANTS[name] for name in parameters if name in CONSTANTS}
    constants |= {name: function for name in parameters[:1] if name == function.__name__}
    paged = {"query", "keys", "values", "pages"} | ({"out"} if "load_tile" in constants else set())
    signature = {}
    for name in parameters:
        if name in constants:
            signature[name] = "constexpr"
        elif name in ("head", "Hkv", "T", "H", "table_width"):
            signature[name] = "i32"
        elif name == "scale":
            signature[name] = "fp32"
        else:
            signature[name] = "*i32" if name in INTEGERS else "*" + (dtype if name in paged else "fp32")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", ARCHITECTURE, 32))


def told(error: BaseException) -> dict[str, Any]:
    """What the compiler says, and file, number and text of the line that it says it about."""
    from coursekit.running import compiler_errors

    known = compiler_errors.is_compiler_error(error)
    words = compiler_errors.cause(error) if known else f"{type(error).__name__}: {error}".partition("\n")[0]
    place = compiler_errors.place(error) if known else None
    answer: dict[str, Any] = {"error": words}
    return answer if place is None else answer | {"file": str(place[0]), "line": place[1], "text": place[2]}


if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # this folder last
    main()
