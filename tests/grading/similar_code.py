"""Made-up code of learners: functions drawn from a seed, their starter, and the same code in another dress."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping
from pathlib import Path

from coursekit.manifest import FunctionRef

NAMES = ("softmax", "linear", "Cache.append")
REFS = tuple(FunctionRef("attention.py", name) for name in NAMES)
HEAD = "from __future__ import annotations\n\nimport torch\n\n"
STUB = 'raise NotImplementedError("Week 1 Day 1 Task 1: Softmax")'
CALLS = ("sum", "exp", "amax", "clamp", "reshape", "unbind", "split", "chunk", "tile", "roll")
GIVEN = (
    "def given(x: torch.Tensor) -> torch.Tensor:\n"
    '    """Given."""\n'
    "    total = x.sum(dim=-1, keepdim=True) + x.mean(dim=0) * 3\n"
    "    for row in range(x.shape[0]):\n"
    "        total = total - x[row].exp().clamp(min=0.5) / x.shape[-1]\n"
    "    return total.reshape(-1, 2).transpose(0, 1) @ x.mT\n"
)


def module(bodies: Mapping[str, str], head: str = HEAD) -> str:
    """A file with a function or a method for each body."""
    parts = [head, GIVEN]
    for name, body in bodies.items():
        owner, _, plain = name.rpartition(".")
        lines = [
            f"def {plain}(x, weight, scale=None):",
            '    """Does it."""',
            *(f"    {line}" for line in body.split("\n")),
        ]
        if owner:
            lines = [f"class {owner}:", *(f"    {line}" for line in lines)]
        parts.append("\n".join(lines) + "\n")
    return "\n\n".join(parts)


def body(seed: object, statements: int = 14) -> str:
    """Statements that another seed doesn't draw."""
    rnd = random.Random(str(seed))
    names = ["x", "weight", "scale", "total", "rows"]
    lines = []
    for _ in range(statements):
        call = f"{rnd.choice(names)}.{rnd.choice(CALLS)}"
        key = rnd.choice(("dim", "min", "keepdim", "index", "shifts"))
        operator = rnd.choice("+-*/@")
        value = rnd.choice(
            ("2", "0.5", "'a'", "len(rows)", "max(total, 1)", "[x, 3]", "x[0, 1]", "scale or 1")
        )
        line = f"{rnd.choice(names)} = {call}({key}={value}) {operator} {rnd.choice(names)}"
        lines.append(f"if {rnd.choice(names)} is None:\n    {line}" if rnd.random() < 0.2 else line)
    return "\n".join([*lines, f"return {rnd.choice(names)}"])


def written(seed: object) -> dict[str, str]:
    """A body for each of the functions."""
    return {name: body(f"{seed} {name}") for name in NAMES}


def package(folder: Path, source: str | bytes) -> Path:
    """A package whose ``attention.py`` is this."""
    folder.mkdir(parents=True)
    (folder / "attention.py").write_bytes(source.encode() if isinstance(source, str) else source)
    return folder


def starter(folder: Path) -> Path:
    """What every learner began with: given code and stubs."""
    return package(folder, module(dict.fromkeys(NAMES, STUB)))


OTHER_NAMES = {"x": "eingabe", "weight": "w", "scale": "s_1", "total": "summe", "rows": "_r", "row": "zeile"}


class _Renaming(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = OTHER_NAMES.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = OTHER_NAMES.get(node.arg, node.arg)
        return node


def renamed(source: str) -> str:
    """Other names of variables; and the layout is Python's own, without comments."""
    return ast.unparse(_Renaming().visit(ast.parse(source)))


def reordered(source: str) -> str:
    """The definitions the other way round."""
    tree = ast.parse(source)
    head = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    rest = [each for each in tree.body if each not in head]
    tree.body = [*head, *reversed(rest)]
    return ast.unparse(tree)


def laid_out(source: str) -> str:
    """Comments on every line, wide indentation, brackets around values, annotations, other docstrings."""
    lines = ast.unparse(ast.parse(source.replace("Does it.", "It does."))).split("\n")
    wide = [f"{' ' * 2 * (len(line) - len(line.lstrip()))}{line.lstrip()}  # note\n" for line in lines]
    text = "\n".join(wide).replace("return total", "return (\n            total\n )")
    typed = "(x: object, weight: list[int], scale: float | None = None) -> object"
    return text.replace("(x, weight, scale=None)", typed)
