"""How much memory a model is said to take: every array once, wherever it is held."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from coursekit.checking.memory import held_bytes


def test_arrays_are_found_in_objects_containers_methods_and_closures() -> None:
    hidden = torch.zeros(7)
    table = SimpleNamespace(weight=torch.zeros(5, 2), look_up=lambda: hidden)
    method = _Holder(np.zeros(3)).method
    model = SimpleNamespace(blocks=[{"a": torch.zeros(11, dtype=torch.bfloat16)}], table=table, head=method)
    assert held_bytes(model) == 11 * 2 + 10 * 4 + 7 * 4 + 3 * 8


def test_an_array_that_is_held_twice_counts_once() -> None:
    weight = torch.zeros(4)
    loop = SimpleNamespace(weight=weight, again=[weight, weight])
    loop.itself = loop
    assert held_bytes(loop) == 16
    assert held_bytes("text") == held_bytes(torch) == held_bytes(_Holder) == 0


def test_memory_that_several_arrays_share_counts_once() -> None:
    numbers = np.zeros(20, np.uint8)
    assert held_bytes([numbers, numbers[4:].view(np.float32), torch.from_numpy(numbers[:3])]) == 20
    assert held_bytes([numbers[2:9], numbers[5:11]]) == 9
    assert held_bytes([torch.zeros(()).expand(500, 300), torch.zeros(0)]) == 4


class _Holder:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def method(self) -> np.ndarray:
        return self.values
