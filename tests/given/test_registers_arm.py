"""What ARM's processors would get for the dot product of bytes: LLVM makes their code on any machine."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from tiny_llm.fast import instructions, llvm_code
from tiny_llm.fast.registers import INTS


@pytest.fixture
def assembly(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """The lines of a function that adds up products, for a processor with some features."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

    def of(features: str) -> list[str]:
        monkeypatch.setattr("numba.config.CPU_FEATURES", features)
        monkeypatch.setattr(llvm_code, "has", instructions.has.__wrapped__)
        module = ir.Module()
        function = ir.Function(
            module, ir.FunctionType(ir.VoidType(), [INTS.as_pointer()] * 3), "add_products"
        )
        builder = ir.IRBuilder(function.append_basic_block())
        total = llvm_code.dot4(builder, *(builder.load(pointer) for pointer in function.args))
        builder.store(total, function.args[0])
        builder.ret_void()
        target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
        machine = target.create_target_machine(cpu="generic", features=features)
        return machine.emit_assembly(llvm.parse_assembly(str(module))).splitlines()

    return of


@pytest.mark.parametrize(
    ("features", "instruction", "count"),
    [("+neon,+dotprod,+i8mm", "usdot", 4), ("+neon,+dotprod", "sdot", 8), ("+neon", "mla", 16)],
)
def test_the_best_instruction_is_used_for_all_lanes(assembly, features, instruction, count):
    lines = assembly(features)
    assert sum(line.split()[:1] == [instruction] for line in lines) == count
    assert not any(line.split()[:1] in (["bl"], ["blr"]) for line in lines), "a function is called"
