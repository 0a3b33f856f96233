"""Tests of tokens and fingerprints: what changes them, what doesn't, and what winnowing promises."""

from __future__ import annotations

import ast
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from similar_code import body, laid_out, module, renamed

from coursekit.lessons.outline import Function
from grading.similarity.tokens import Token, tokens
from grading.similarity.winnowing import K, W, fingerprints, run_hashes


def function(source: str) -> Function:
    [node] = [each for each in ast.parse(source).body if isinstance(each, Function)]
    return node


def words(source: str) -> list[str]:
    return [token.text for token in tokens(function(source))]


def row(texts: list[str]) -> list[Token]:
    return [Token(text, number) for number, text in enumerate(texts, 1)]


CATCH = "try:\n        x()\n    except ValueError as e:\n        y(e)"


def one(source: str) -> str:
    return f"def f(x, y, *args, **more):\n    {source}\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("return x + y", "return a + b"),
        ("return x + y  # sum", "return ( x\n  + y )"),
        ("return 1", "return 2"),
        ("return 'a'", 'return "bb" "c"'),
        ("z = x; return z", "z = x\n    return z"),
        ("z: int = x", "z: float = x"),
        ("'doc'\n    return x", "return x"),
        ("def g(u):\n        'doc'\n        return u", "def h(v: int) -> int:\n        return v"),
        ("max = 1\n    return max", "m = 1\n    return m"),
        ("return f(x)", "return g(x)"),
        ("import numpy as np\n    return np.exp(x)", "import numpy as n\n    return n.exp(x)"),
        (CATCH, CATCH.replace("e:", "f:").replace("(e)", "(f)")),
        ("return [u for u in x]", "return [v for v in y]"),
        ("return lambda u: u", "return lambda v: v"),
        ("def g(u): return u\n    return g(u=x)", "def g(v): return v\n    return g(v=x)"),
    ],
)
def test_these_are_the_same(first: str, second: str) -> None:
    assert words(one(first)) == words(one(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("return x + y", "return x - y"),
        ("return x.exp()", "return x.sum()"),
        ("return len(x)", "return max(x)"),
        ("return f(x)", "return len(x)"),
        ("return 1", "return 1.0"),
        ("return None", "return True"),
        ("return x.sum(dim=y)", "return x.sum(out=y)"),
        ("import numpy", "import torch"),
        ("from numpy import exp", "from torch import exp"),
        ("from numpy import exp", "from numpy import sum"),
        ("return x if y else x", "return x or y"),
        ("return x < y", "return x <= y"),
        ("return x", "yield x"),
    ],
)
def test_these_are_not_the_same(first: str, second: str) -> None:
    assert words(one(first)) != words(one(second))


def test_tokens_come_in_the_order_of_the_text_with_their_lines() -> None:
    found = tokens(function("def f(x):\n    'doc'\n    y = x.exp(dim=1)\n    return y\n"))
    assert [(token.text, token.line) for token in found] == [
        *(("Assign", 3), ("Name", 3), ("Call", 3), ("Attribute exp", 3), ("Name", 3), ("keyword dim", 3)),
        *(("Constant int", 3), ("Return", 4), ("Name", 4)),
    ]


def test_a_function_nested_as_deeply_as_python_reads_has_tokens() -> None:
    assert len(words(one("return " + "-" * 80 + "x"))) == 162
    assert words("def f():\n    'only a docstring'\n") == []


@given(st.integers(0, 10_000))
def test_other_names_and_another_layout_keep_the_fingerprints(seed: int) -> None:
    source = module({"softmax": body(seed)})
    expected = _hashes(source)
    assert expected
    assert _hashes(renamed(source)) == expected
    assert _hashes(laid_out(source)) == expected


def _hashes(source: str) -> list[int]:
    [node] = [
        each for each in ast.parse(source).body if isinstance(each, Function) and each.name == "softmax"
    ]
    return [each.hash for each in fingerprints(tokens(node))]


FIRST = 11129680174765743341  # the hash of K times "a"
LETTERS = st.lists(st.sampled_from("abcdefgh"), max_size=40)


@given(
    LETTERS, LETTERS, LETTERS, LETTERS, st.lists(st.sampled_from("abcdefgh"), min_size=K + W - 1, max_size=60)
)
def test_a_long_enough_match_is_always_found(
    before: list[str], after: list[str], start: list[str], end: list[str], common: list[str]
) -> None:
    first = {each.hash for each in fingerprints(row([*before, *common, *after]))}
    second = {each.hash for each in fingerprints(row([*start, *common, *end]))}
    assert first & second


@given(st.lists(st.sampled_from("ab"), min_size=K, max_size=K), st.integers(0, K - 1))
def test_a_match_that_is_shorter_than_a_run_is_never_found(common: list[str], place: int) -> None:
    other = list(common)
    other[place] = "c"
    assert not {each.hash for each in fingerprints(row(common))} & {
        each.hash for each in fingerprints(row(other))
    }


@given(st.lists(st.sampled_from("abcdefgh"), max_size=100))
def test_every_fingerprint_is_the_hash_of_a_run_at_its_lines(texts: list[str]) -> None:
    hashes = run_hashes(row(texts))
    found = fingerprints(row(texts))
    assert len(hashes) == max(0, len(texts) - K + 1)
    assert all(each.hash == hashes[each.first_line - 1] for each in found)
    assert all(each.last_line == each.first_line + K - 1 for each in found)
    assert [each.first_line for each in found] == sorted({each.first_line for each in found})
    # Of W hashes in a row one is kept, and of any row at least one.
    starts = [0, *(each.first_line for each in found), len(hashes) + 1]
    assert all(later - earlier <= W for earlier, later in pairwise(starts)) or not found
    assert bool(found) == (len(texts) >= K)


def test_lines_that_run_backwards_are_covered_from_the_first_to_the_last() -> None:
    made = [Token(f"t{number}", K - number) for number in range(K)]
    assert [(each.first_line, each.last_line) for each in fingerprints(made)] == [(1, K)]


def test_hashes_are_the_same_on_every_machine_and_spread_out() -> None:
    assert run_hashes(row(["a"] * K)).tolist() == run_hashes(row(["a"] * K)).tolist() == [FIRST]
    many = run_hashes(row([str(number) for number in range(2_000)]))
    assert len(np.unique(many)) == len(many)
    kept = fingerprints(row([str(number) for number in range(2_000)]))
    assert len(kept) == pytest.approx(2 * len(many) / (W + 1), rel=0.1)
