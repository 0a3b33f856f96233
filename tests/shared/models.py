"""The learner's own model of Week 1, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from week_1 import numpy_model


def real_model(lab: Any, family: str, array: Callable[[np.ndarray], Any] | None = None) -> Any:
    """A tiny `Transformer` of that family with the tensors of `numpy_model.random_tensors`.

    Each tensor is put where `array` puts it; left out, on the lab's device.
    """
    config = lab.config.ModelConfig(**numpy_model.config_fields(family))
    tensors = {name: (array or lab.array)(x) for name, x in numpy_model.random_tensors(family).items()}
    return lab.model.Transformer(config, lab.weights.Weights(config, tensors))
