"""The transformer of Week 1 with random weights."""

from __future__ import annotations

from typing import Any

from week_1 import numpy_model


def real_model(lab: Any, family: str) -> Any:
    """A tiny one of that family; all tensors on the lab's device."""
    config = lab.config.ModelConfig(**numpy_model.config_fields(family))
    tensors = numpy_model.random_tensors(family)
    weights = lab.weights.Weights(config, {name: lab.array(x) for name, x in tensors.items()})
    return lab.model.Transformer(config, weights)
