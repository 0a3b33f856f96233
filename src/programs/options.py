"""The options that the programs share, with their help texts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from coursekit.backends import Device
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


class Matmul(StrEnum):
    AUTO = "auto"
    PLAIN = "plain"
    KERNEL = "kernel"
    TORCH = "torch"


ImplOption = Annotated[Impl, typer.Option(help="Whose code runs: yours, or the reference.")]
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
        "a GPU it is interpreted, which takes minutes), or auto: the best for --dtype and --device."
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        help="4 keeps the weights of the blocks in 4 bits (Day 2.2); left out, they are in --dtype."
    ),
]
MatmulOption = Annotated[
    Matmul,
    typer.Option(
        help="With --bits 4, how to multiply: plain (dequantize each time, Day 2.2), kernel (Day 2.3), torch "
        "(its own kernel, in bfloat16), or auto: the best for --dtype and --device."
    ),
]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="How many tokens to generate at most, per prompt.")]
TemperatureOption = Annotated[
    float, typer.Option(help="0 always takes the best token; higher is more varied.")
]
TopKOption = Annotated[int, typer.Option(help="Draw from the k best tokens only; 0 for all.")]
TopPOption = Annotated[float, typer.Option(help="Draw from the fewest tokens that reach this probability.")]
MinPOption = Annotated[
    float, typer.Option(help="Drop tokens below this share of the best one's probability.")
]
SeedOption = Annotated[int | None, typer.Option(help="The same seed draws the same tokens.")]
