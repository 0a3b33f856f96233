"""What a test is called on the board: its name as a sentence, and which of its cases this is."""

from __future__ import annotations

import re

from coursekit.running.results import TASK_TEST

NAMED = r"[A-Za-z_]\w*=(?:-?[\d.]+(?:e[+-]?\d+)?|-?inf|nan|True|False|None)"
BEFORE_NAMED = re.compile(rf"-(?={NAMED}(?:-|\]))")
AFTER_NAMED = re.compile(rf"((?:\[|, ){NAMED})-")


class NamedParameters:
    """A plugin of pytest: the numbers of a case stand with their names, since `[0-1]` alone says little."""

    def pytest_make_parametrize_id(self, val: object, argname: str) -> str | None:
        return f"{argname}={val}" if val is None or isinstance(val, bool | int | float) else None


def sentence(test_name: str) -> str:
    """What a test's name says: "test_task_2_heads_share_keys[B=1-H=3]" -> "heads share keys [B=1, H=3]"."""
    name, bracket, parameters = test_name.partition("[")
    match = TASK_TEST.fullmatch(name)
    words = (match[2] if match else name.removeprefix("test_")).replace("_", " ")
    case = AFTER_NAMED.sub(r"\1, ", BEFORE_NAMED.sub(", ", bracket + parameters))
    return f"{words} {case}".strip()
