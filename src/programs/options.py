"""The options that the programs share, with their help texts."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer

from coursekit.backends import Backend, Device
from coursekit.running.import_path import Impl


class Dtype(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Cache(StrEnum):
    NONE = "none"
    FULL = "full"
    FUSED = "fused"
    PAGED = "paged"


class Attention(StrEnum):
    AUTO = "auto"
    REFERENCE = "reference"
    CPU = "cpu"
    TRITON = "triton"
    METAL = "metal"
    METAL_TILES = "metal-tiles"


class Matmul(StrEnum):
    AUTO = "auto"
    PLAIN = "plain"
    KERNEL = "kernel"
    TORCH = "torch"


MOST = 1_000_000
"""Of anything that is counted in tokens or requests: more than any of the models has, and a number that is held."""


def finite(value: float | None) -> float | None:
    """A number that can be computed with: NaN and infinity pass every comparison that an option can ask for.

    Raises:
        typer.BadParameter: it is neither.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number that can be computed with")
    return value


def above_zero(value: float | None) -> float | None:
    """A finite number above 0.

    Raises:
        typer.BadParameter: it is not.
    """
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def fits_64_bits(value: int | None) -> int | None:
    """A whole number that the protocol can carry.

    Raises:
        typer.BadParameter: it is too large.
    """
    if value is not None and not -(2**63) <= value < 2**63:
        raise typer.BadParameter("it has more than 64 bits")
    return value


def not_empty(text: str) -> str:
    """A text that has something in it.

    Raises:
        typer.BadParameter: it is empty.
    """
    if not text:
        raise typer.BadParameter("the prompt is empty: there is nothing to answer or to continue")
    return text


def only_4(bits: int | None) -> int | None:
    """The number of bits that weights can be kept in, if any.

    Raises:
        typer.BadParameter: another number.
    """
    if bits not in (None, 4):
        raise typer.BadParameter(f"weights can be kept in 4 bits, not in {bits}")
    return bits


ImplOption = Annotated[Impl, typer.Option(help="Whose code runs: yours, or the reference.")]
BackendOption = Annotated[
    Backend, typer.Option(help="Whose arrays: those of torch, or those of MLX, as far as its track goes.")
]
ModelOption = Annotated[
    str,
    typer.Option(
        help="smollm2-135m, a .gguf file, a Hugging Face folder, or a hub id such as Qwen/Qwen3-0.6B."
    ),
]
DtypeOption = Annotated[Dtype, typer.Option(help="The number format of weights and arithmetic.")]
DeviceOption = Annotated[Device, typer.Option(help="Where the model runs.")]
CacheOption = Annotated[
    Cache,
    typer.Option(
        help="What is kept of the past: none (all of it recomputed for every token, Day 1.6), full (Day 2.1), "
        "fused (the same with Day 2.5's attention, on the CPU), or paged (Day 3.2)."
    ),
]
AttentionOption = Annotated[
    Attention,
    typer.Option(
        help="How to attend over pages: reference (Day 3.2), cpu (the kernel of Day 3.3), triton (Day 3.4; without "
        "a GPU it is interpreted, which takes minutes), metal or metal-tiles (the same days with --backend mlx), or "
        "auto: the best for --dtype and --device."
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        callback=only_4,
        help="4 keeps the weights of the blocks in 4 bits (Day 2.2); left out, they are in --dtype.",
    ),
]
MatmulOption = Annotated[
    Matmul,
    typer.Option(
        help="With --bits 4, how to multiply: plain (dequantize each time, Day 2.2), kernel (Day 2.3), torch "
        "(its own kernel, in bfloat16), or auto: the best for --dtype and --device."
    ),
]
FastOption = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="Run Day 4.7's engine, on the CPU: weights in 4 bits, activations in 8, and kernels of its own.",
    ),
]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Continue the prompt as plain text, without a chat; it is printed, too.")
]
MaxTokensOption = Annotated[
    int, typer.Option(min=1, max=MOST, help="How many tokens to generate at most, per prompt.")
]
TemperatureOption = Annotated[
    float,
    typer.Option(min=0, callback=finite, help="0 always takes the best token; higher is more varied."),
]
TopKOption = Annotated[
    int, typer.Option(min=0, max=MOST, help="Draw from the k best tokens only; 0 for all.")
]
TopPOption = Annotated[
    float,
    typer.Option(max=1, callback=above_zero, help="Draw from the fewest tokens that reach this probability."),
]
MinPOption = Annotated[
    float, typer.Option(min=0, max=1, help="Drop tokens below this share of the best one's probability.")
]
RepetitionPenaltyOption = Annotated[
    float,
    typer.Option(min=0.01, max=100, help="Above 1 makes tokens that have occurred less likely; 1 is off."),
]
SeedOption = Annotated[
    int | None, typer.Option(callback=fits_64_bits, help="The same seed draws the same tokens.")
]
