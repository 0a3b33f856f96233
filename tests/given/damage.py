"""Ways to damage a model's files, for hypothesis to draw from."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tiny_llm.loading.gguf_file import read_gguf

WHOLE = st.sampled_from(
    [0, 1, 2, 3, 7, 8, 9, 31, 64, 2**15, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 130),
    WHOLE,
    st.sampled_from([10**400, -(10**30), 1e308, -0.5, 1e-320, float("nan"), float("inf"), float("-inf")]),
    st.sampled_from(
        ["", " ", "llama", "x" * 10_000, "\ud800", "\udfff\n", "\0", "../x", "/dev/zero", "ByteLevel", "é漢"]
    ),
    st.text(max_size=5),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PATTERNS = st.lists(
    st.sampled_from(
        ["a", r"\s", r"\p{L}", ".", "(", ")", "|", "+", "*", "?", "{9}", "{1,99}", "^", "$", "(?!", "[", "]"]
    ),
    max_size=9,
).map("".join)
STEPS = st.one_of(
    PATTERNS.map(
        lambda text: {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
    ),
    st.tuples(PATTERNS, st.text(max_size=3)).map(
        lambda both: {"type": "Replace", "pattern": {"Regex": both[0]}, "content": both[1] * 300}
    ),
    st.sampled_from(
        ["NFC", "NFKD", "Digits", "ByteLevel", "Metaspace", "Fuse", "Strip", "Lowercase", "BertNormalizer"]
    ).map(lambda kind: {"type": kind}),
)
KEYS = st.sampled_from(
    [
        "type",
        "pattern",
        "content",
        "pretokenizers",
        "normalizers",
        "decoders",
        "id",
        "special",
        "vocab",
        "merges",
        "x",
    ]
)
TEMPLATES = st.lists(
    st.sampled_from(
        [
            "{% for m in messages %}",
            "{% for a in range(99999) %}",
            "{% for a in range(9) recursive %}{{ loop(range(9)) }}",
            "{% endfor %}",
            "{% if x %}",
            "{% else %}",
            "{% endif %}",
            "{% macro f(a) %}",
            "{% endmacro %}",
            "{{ f(f) }}",
            "{% set x = (x or 'x') ~ x ~ x %}",
            "{% set n = namespace(v=messages) %}",
            "{% set n.v = [n.v, n.v] %}",
            "{{ n }}",
            "{{ messages[0].content }}",
            "{{ messages[-9]['role'] }}",
            "{{ 1 / 0 }}",
            "{{ 9 ** 99999 }}",
            "{{ 'x' * 10 ** 9 }}",
            "{{ 'x' | center(10 ** 9) }}",
            "{{ messages | tojson(indent=10 ** 9) }}",
            "{{ messages.__class__ }}",
            "{{ '%099999999d' % 1 }}",
            "{{ lipsum(n=10 ** 6) }}",
            "{% include 'x' %}",
            "{% extends messages %}",
            "{{ raise_exception(messages) }}",
            "{{ strftime_now(9) }}",
            "{{ '\\ud800' }}",
            "{% break %}",
            "{{",
            "%}",
            "plain\n",
        ]
    ),
    max_size=8,
).map("".join)


def edits_of(content: bytes, places: list[int]) -> st.SearchStrategy[bytes]:
    """The file with some bytes or numbers overwritten, mostly at the places given, and perhaps cut short."""
    place = st.one_of(*[st.sampled_from(places)] * 4, st.integers(0, len(content) - 1))
    number = st.one_of(
        st.binary(min_size=1, max_size=2),
        WHOLE.map(lambda value: struct.pack("<Q", value)),
        WHOLE.map(lambda value: struct.pack("<I", value % 2**32)),
        st.integers(0, 13).map(lambda value: struct.pack("<I", value)),
        st.sampled_from([float("nan"), float("inf"), -1.0, 1e-40, 3e38]).map(
            lambda value: struct.pack("<f", value)
        ),
    )
    end = st.one_of(*[st.just(len(content))] * 9, st.integers(0, len(content)))
    return st.builds(
        _edited, st.just(content), st.lists(st.tuples(place, number), min_size=1, max_size=2), end
    )


def _edited(content: bytes, edits: list[tuple[int, bytes]], end: int) -> bytes:
    damaged = bytearray(content)
    for place, number in edits:
        damaged[place : place + len(number)] = number
    return bytes(damaged[:end])


def header_places(path: Path) -> list[int]:
    """Where the types, counts and values of a GGUF header stand, and the lengths of some names."""
    content, file = path.read_bytes(), read_gguf(path)
    places = [4, 8, 16]
    for number, name in enumerate([*file.metadata, *file.tensors]):
        at = content.index(struct.pack("<Q", len(name)) + name.encode())
        after = at + 8 + len(name)
        places += [after, after + 4, after + 4, after + 8]
        if name in file.tensors:
            places += [after + 12, after + 16, after + 20, after + 24]
        if number % 8 == 0:
            places.append(at)
    return places


@st.composite
def json_edits(draw: st.DrawFn, content: str, values: st.SearchStrategy[Any] = VALUES) -> str:
    """A JSON text with values replaced, added or taken out anywhere inside, or damaged as text."""
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(content)))
        return content[:cut] + draw(
            st.sampled_from(["", "[" * 50_000, '{"a":' * 50_000, "\x00", "}}", content])
        )
    whole = json.loads(content)
    for _ in range(draw(st.integers(1, 2))):
        _replace_one(draw, whole, values)
    return json.dumps(whole)


def _replace_one(draw: st.DrawFn, node: Any, values: st.SearchStrategy[Any]) -> None:
    """Walk down from the top to some place, and put another value there."""
    while True:
        keys = (
            [key for key in node if key != "vocab"]
            if isinstance(node, dict)
            else list(range(min(len(node), 4)))
        )
        if isinstance(node, dict) and (not keys or draw(st.integers(0, 9)) == 0):
            node[draw(KEYS)] = draw(values)
            return
        if not keys:
            node.append(draw(values))
            return
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or draw(st.booleans()):
            node[key] = draw(values)
            return
        node = node[key]
