"""A crash tells the shapes of the arrays that the failing line names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from coursekit.running.failures import describe
from coursekit.running.places import Places

HERE = Path(__file__).resolve()


class Heads(NamedTuple):
    """Two arrays with names of their own."""

    query: torch.Tensor
    key: torch.Tensor


class Store:
    """Has storage for 4 tokens of 2 heads; whatever does not fit ends in an error of torch's or Python's."""

    def __init__(self) -> None:
        self.keys = torch.zeros(1, 2, 4, 8)
        self.length = 3

    @property
    def never(self) -> torch.Tensor:
        raise AssertionError("a message must not run the learner's code")

    def append(self, key: torch.Tensor) -> None:
        B, Hkv, L, D = key.shape  # of self.keys, too
        self.keys[:B, :Hkv, :L, :D] = key

    def joined(self, key: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [
                self.keys,
                key,
            ],
            dim=self.length,
        )

    def read(self, key: torch.Tensor) -> torch.Tensor:
        return self.never if key is None else key + self.keys[0][9]

    def refuse(self, key: torch.Tensor) -> None:
        raise ValueError(f"{key.shape} is no key of mine")

    def add(self, key: torch.Tensor, slot: int) -> None:
        self.append(key[slot])

    def score(self, heads: Heads) -> torch.Tensor:
        return heads.query @ heads.key


def said(call: Any, *arguments: Any) -> str:
    """What a learner would read, if this file were the learner's package."""
    with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
        call(*arguments)
    trace = caught.value.__traceback__
    assert trace is not None
    caught.value.__traceback__ = trace.tb_next.tb_next if trace.tb_next else None  # without this file's test
    return describe(caught.value, Places(HERE.parent, (HERE,))).message


def test_the_shapes_and_the_call_are_told_where_an_axis_is_missing():
    text = said(lambda: Store().add(torch.zeros(3, 2, 1, 8), 1))
    assert "ValueError: not enough values to unpack (expected 4, got 3)" in text
    assert "\n  there: key [2, 1, 8]\n" in text
    assert re.search(r"\n  called by test_named_values\.py:\d+: self\.append\(key\[slot\]\)$", text)


def test_numbers_and_attributes_are_told_too_from_every_line_of_the_statement():
    text = said(lambda: Store().joined(torch.zeros(1, 2, 2, 8)))
    assert "\n  there: self.keys [1, 2, 4, 8], key [1, 2, 2, 8], self.length = 3" in text


def test_the_fields_of_a_named_tuple_are_told():
    text = said(lambda: Store().score(Heads(torch.zeros(2, 3), torch.zeros(4, 5))))
    assert "\n  there: heads.query [2, 3], heads.key [4, 5]" in text


def test_nothing_of_the_learners_is_run_for_a_message():
    text = said(lambda: Store().read(torch.zeros(2)))
    assert "\n  there: key [2], self.keys [1, 2, 4, 8]" in text


def test_an_error_that_is_raised_on_purpose_needs_no_shapes():
    assert "there:" not in said(lambda: Store().refuse(torch.zeros(2)))


def test_a_line_without_arrays_has_no_shapes():
    assert "there:" not in said(lambda: int("a"))
