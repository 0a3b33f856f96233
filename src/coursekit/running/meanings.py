"""What exceptions that say little to a beginner mean, in plain words."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coursekit.running.places import Places

TRANSPOSED = re.compile(r"\.T\b")
# How torch and MLX refuse a product of arrays of three or more axes; of matrices they speak in other words.
SHAPES_OF_BATCHES = re.compile(
    r"size of tensor a .* must match|first two dimensions of batch2|\[matmul\] .*\(\d+(,\d+){2,}\)\.?$"
)

# What None means depends on whose line it met: a test never passes on an argument that was left out.
NONE_IN_A_TEST = "a value is None here: is a `return` missing?"
NONE_IN_LEARNERS_CODE = (
    "a value is None here: an optional argument that was not given (test it with `is None`), "
    "or a function of yours without `return`"
)
NEITHER_TRUE_NOR_FALSE = (
    "an array is neither true nor false: to ask whether an argument was given, test it with `is None`"
)
ALL_AXES_TURNED = "`.T` turns all axes round; `.mT` swaps the last two"

OTHER_ARGUMENTS = "this call and the function that it calls don't agree on the arguments"
ARGUMENTS = r"takes .*positional arguments? but|(unexpected|invalid) keyword argument"

# Exceptions that say little to a beginner: type, a pattern of the message, what it means.
MEANINGS = (
    ("RuntimeError", r"Boolean value of Tensor .* ambiguous", NEITHER_TRUE_NOR_FALSE),
    ("ValueError", r"truth value of an array|Only length-1 arrays can be converted", NEITHER_TRUE_NOR_FALSE),
    (
        "AttributeError",
        r"module '\S+' has no attribute '(\w+)'",
        r"\1 is gone: was it renamed, moved or deleted?",
    ),
    ("UnboundLocalError", r"variable '(\w+)'", r"\1 is used before anything was assigned to it"),
    (
        "NameError",
        r"name '(\w+)' is not defined",
        r"\1 is neither imported nor assigned: a slip of the keyboard?",
    ),
    (
        "TypeError",
        r"unexpected keyword argument '(\w+)'",
        r"keep the signature of the starter: \1 is part of it",
    ),
    ("TypeError", ARGUMENTS, "keep the signature of the starter"),
    ("AssertionError", r"", "an assert in your own code does not hold"),
    ("RecursionError", r"", "a function calls itself without end"),
    (
        "ModuleNotFoundError",
        r"named '([\w.]+)'",
        r"there is no module \1: is the file there, and its name right?",
    ),
    (
        "RuntimeError",
        r"size of tensor a \((\d+)\) must match .* b \((\d+)\)",
        r"sizes \1 and \2 meet on one axis",
    ),
    (
        "TypeError",
        r"torch\.return_types\.(max|min)\b",
        r"\1 along an axis gives values and indices: a\1 gives values",
    ),
    (
        "RuntimeError",
        r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)",
        r"the array has \2 numbers, and these sizes make another product: \1",
    ),
    (
        "RuntimeError",
        r"mat1 and mat2 shapes cannot be multiplied",
        "a matrix product whose inner sizes differ",
    ),
    (
        "RuntimeError",
        r"[Ee]xpected all tensors to be on the same device",
        "an array was made on another device",
    ),
    (
        "RuntimeError",
        r"view size is not compatible",
        "after a transpose the numbers are not in a row: use reshape",
    ),
)


def meaning(error: BaseException, frames: traceback.StackSummary, places: Places) -> list[str]:
    """What an exception of torch's or Python's means, in a line, where its own words say little; or no line."""
    reached = [f for f in frames if places.is_learners(f.filename) or places.is_test(f.filename)]
    learners = bool(reached) and places.is_learners(reached[-1].filename)
    if isinstance(error, (AttributeError, TypeError)) and "NoneType" in str(error):
        return [f"  {NONE_IN_LEARNERS_CODE if learners else NONE_IN_A_TEST}"]
    if learners and SHAPES_OF_BATCHES.search(str(error)) and TRANSPOSED.search(reached[-1].line or ""):
        return [f"  {ALL_AXES_TURNED}"]
    # Only where a test calls is the signature known to be the learner's to keep.
    if learners and isinstance(error, TypeError) and re.search(ARGUMENTS, str(error)):
        return [f"  {OTHER_ARGUMENTS}"]
    if isinstance(error, AssertionError) and frames and not places.is_learners(frames[-1].filename):
        return []  # Triton's own, on its way through the learner's kernel
    for kind, pattern, words in MEANINGS:
        match = re.search(pattern, str(error))
        if match and any(base.__name__ == kind for base in type(error).__mro__):
            return [f"  {match.expand(words)}"]
    return []
