"""A model's tensors by name, as the model asks for them (given code, for both tracks).

    weights.tensor("norm.weight")      # [E]
    weights.linear("blocks.0.qkv")     # a Linear, or a QuantizedLinear; with its bias where the model has one

Every supported family comes out under the same names and in the same form, whatever the names in its file:

    embedding.weight                [V, E]
    blocks.{i}.attention_norm.weight [E]
    blocks.{i}.qkv.weight           [(H + 2·Hkv)·D, E]   rows: query, key, value; with .bias in Qwen2
    blocks.{i}.query_norm.weight    [D]                  Qwen3, and key_norm likewise
    blocks.{i}.attention_out.weight [E, H·D]
    blocks.{i}.mlp_norm.weight      [E]
    blocks.{i}.gate_up.weight       [2·F, E]             rows: gate, up
    blocks.{i}.down.weight          [E, F]
    norm.weight                     [E]
    head.weight                     [V, E]               only where the head isn't the embedding

With `bits=4` the matrices of the blocks (qkv, attention_out, gate_up, down) are QuantizedTensors, the others floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiny_llm.arrays import Tensor
from tiny_llm.config import ModelConfig
from tiny_llm.layers import Linear, Projection
from tiny_llm.loading.errors import WeightsError
from tiny_llm.quantize import DequantizedMatmul, Matmul, QuantizedLinear, QuantizedTensor


@dataclass(frozen=True)
class Weights:
    """A model's config and its tensors by name, on one device; the tensors in floats all have one dtype."""

    config: ModelConfig
    tensors: Mapping[str, Tensor | QuantizedTensor]
    matmul: Matmul = DequantizedMatmul  # the way to multiply by weights in 4 bits

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name, in floats.

        Raises:
            WeightsError: this model has no tensor of that name, or has it in 4 bits.
        """
        found = self._find(name)
        if isinstance(found, QuantizedTensor):
            raise WeightsError(
                f"{name!r} is in 4 bits: use linear(), or dequantize(weights.tensors[{name!r}])"
            )
        return found

    def linear(self, name: str) -> Projection:
        """The layer with `name`.weight and, where the model has one, `name`.bias.

        Returns:
            a Linear, or a QuantizedLinear where the weight is in 4 bits.

        Raises:
            WeightsError: there is no such weight, or :attr:`matmul` can't multiply by it.
        """
        weight = self._find(f"{name}.weight")
        bias = self.tensor(f"{name}.bias") if f"{name}.bias" in self.tensors else None
        if not isinstance(weight, QuantizedTensor):
            return Linear(weight, bias)
        try:
            return QuantizedLinear(weight, bias, self.matmul)
        except ValueError as error:
            raise WeightsError(str(error)) from error

    def _find(self, name: str) -> Tensor | QuantizedTensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise WeightsError(
                f"this {self.config.architecture} model has no tensor {name!r}; named_tensors.py lists the names"
            ) from None
