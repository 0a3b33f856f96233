"""Day 1.5: the seam, the attention layer, the block, the transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shared.arguments import check_leaves_alone
from shared.models import real_model
from shared.numbers import normal

from coursekit.check import check, check_equal, check_raises, check_untouched

from . import numpy_model as oracle
from .caches import RecordingCache, RememberingCache, attention_oracle, dense_cache
from .numpy_model import FAMILIES, HKV, LAYERS, B, D, E, H, L, V

S = 7  # keys: more than the L queries
LAYER = "blocks.1"
QK_NORMS = ("query_norm", "key_norm")


def check_deep(actual: Any, expected: np.ndarray, **options: Any) -> None:
    """Check what has gone through several layers of float32: their rounding adds up."""
    __tracebackhide__ = True
    check(actual, expected, rtol=1e-4, atol=2e-5, **options)


def token_ids(rows: int = B, length: int = L) -> np.ndarray:
    return np.random.default_rng(150).integers(0, V, size=(rows, length))


def run_of(start: int, rows: int = B, length: int = L) -> np.ndarray:
    """Positions [rows, length], the same run in every row."""
    return np.tile(np.arange(start, start + length), (rows, 1))


def hidden_above(diagonal: int) -> np.ndarray:
    """A mask [L, S] that hides key s from query i where s > i + diagonal."""
    return np.where(np.arange(S) > np.arange(L)[:, None] + diagonal, -np.inf, 0.0)


def mask_as_scale(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, mask: np.ndarray
) -> np.ndarray:
    """Attention whose scores are multiplied by the mask, and to which the scale is added."""
    keys, values = (np.repeat(x, H // HKV, axis=1) for x in (keys, values))
    with np.errstate(invalid="ignore"):  # 0 · ∞ and ∞ − ∞ are NaN here, as they are for the learner
        scores = query @ keys.swapaxes(2, 3) * mask + scale
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ values


def attention_layer(lab: Any, family: str, block: str = LAYER, norms: tuple[str, ...] = QK_NORMS) -> Any:
    """The attention of one layer with this family's random weights; a rotary table of its own.

    `norms` names the norms on heads that are given to the layer where the family has them.
    """
    tensors = oracle.random_tensors(family)
    norm, linear = lab.layers.RMSNorm, lab.layers.Linear

    def array(name):
        return lab.array(tensors[f"{block}.{name}"]) if f"{block}.{name}" in tensors else None

    given = [name in norms and FAMILIES[family]["qk_norm"] for name in QK_NORMS]
    return lab.model.Attention(
        linear(array("qkv.weight"), array("qkv.bias")),
        linear(array("attention_out.weight")),
        lab.positional_encoding.RoPE(D, oracle.MAX_POSITIONS, oracle.ROPE_BASE, device=lab.device),
        H,
        HKV,
        D,
        norm(array("query_norm.weight"), oracle.EPS) if given[0] else None,
        norm(array("key_norm.weight"), oracle.EPS) if given[1] else None,
    )


def transformer(lab: Any, family: str = "llama") -> tuple[Any, dict[str, np.ndarray]]:
    """A tiny model and its tensors in NumPy."""
    return real_model(lab, family), oracle.random_tensors(family)


# Task 1: the seam


@pytest.mark.parametrize(
    "mask",
    [hidden_above(S - L), np.stack([hidden_above(S - L), hidden_above(0)])[:, None], None],
    ids=["L S", "B 1 L S", "no mask"],
)
def test_task_1_attends_over_all_the_keys_that_come_back(lab, mask):
    query, key, value = normal(1, B, H, L, D), normal(2, B, HKV, L, D), normal(3, B, HKV, L, D)
    keys, values = normal(4, B, HKV, S, D), normal(5, B, HKV, S, D)
    cache = dense_cache(lab, keys, values, mask)
    actual = cache.attend(lab.array(query), lab.array(key), lab.array(value), 0.7)
    everything = np.zeros((L, S)) if mask is None else mask

    def without_mask():
        return attention_oracle(query, keys, values, 0.7, np.zeros((L, S)))

    check(
        actual,
        attention_oracle(query, keys, values, 0.7, everything),
        name="what attend returns",
        axes="B H L D",
        suspects={
            "only the new keys and values were attended to": lambda: attention_oracle(
                query, key, value, 0.7, np.zeros((L, L))
            ),
            "the mask was left out": without_mask,
            "1/√D took the place of the scale given": lambda: attention_oracle(
                query, keys, values, D**-0.5, everything
            ),
            "the mask stands where the scale belongs: query, keys, values, scale, mask is the order": lambda: (
                mask_as_scale(query, keys, values, 0.7, everything)
            ),
            "keys and values are exchanged": lambda: attention_oracle(query, values, keys, 0.7, everything),
        },
    )


def test_task_1_updates_the_cache_exactly_once(lab):
    key, value = normal(2, B, HKV, L, D), normal(3, B, HKV, L, D)
    cache = dense_cache(lab, normal(4, B, HKV, S, D), normal(5, B, HKV, S, D), None)
    cache.attend(lab.array(normal(1, B, H, L, D)), lab.array(key), lab.array(value), 0.5)
    check_equal(len(cache.updates), 1, name="calls of update_and_fetch in one attend")
    given_key, given_value = cache.updates[0]
    check(given_key, key, name="the keys given to update_and_fetch", framework="numpy")
    check(given_value, value, name="the values given to update_and_fetch", framework="numpy")


def test_task_1_a_query_that_may_see_no_key_gets_zeros(lab):
    mask = hidden_above(S - L)
    mask[2] = -np.inf
    query, keys, values = normal(6, B, H, L, D), normal(7, B, HKV, S, D), normal(8, B, HKV, S, D)
    cache = dense_cache(lab, keys, values, mask)
    new = lab.array(normal(9, B, HKV, L, D))
    expected = attention_oracle(query, keys, values, 0.3, mask)
    check(cache.attend(lab.array(query), new, new, 0.3), expected, name="what attend returns", axes="B H L D")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_1_without_a_cache_there_are_only_the_new_tokens(lab, dtype):
    cache = lab.kv_cache.NoCache()
    for call, length in (
        ("first", L),
        ("second", L),
        ("third", 3),
    ):  # a call must find nothing of those before
        key = lab.array(normal(10, B, HKV, length, D), dtype)
        value = lab.array(normal(11, B, HKV, length, D), dtype)
        keys, values, mask = cache.update_and_fetch(key, value)
        check(keys, lab.numpy(key), name=f"the keys of the {call} call", axes="B Hkv S D", dtype=dtype)
        check(values, lab.numpy(value), name=f"the values of the {call} call", axes="B Hkv S D", dtype=dtype)
        assert mask is not None, (
            "NoCache gives no mask, so every token sees those after it: causal_mask makes one"
        )
        causal = np.where(np.tri(length, dtype=bool), 0.0, -np.inf)
        check(mask, causal, name=f"the mask of the {call} call", axes="L S", dtype=dtype)


def test_task_1_query_keys_and_values_are_left_as_they_were(lab):
    check_leaves_alone(
        lab,
        lambda query, key, value: lab.kv_cache.NoCache().attend(query, key, value, 0.4),
        query=normal(15, B, H, L, D),
        key=normal(16, B, HKV, L, D),
        value=normal(17, B, HKV, L, D),
    )


def test_task_1_without_a_cache_attention_is_causal(lab):
    query, key, value = normal(12, B, H, L, D), normal(13, B, HKV, L, D), normal(14, B, HKV, L, D)
    actual = lab.kv_cache.NoCache().attend(lab.array(query), lab.array(key), lab.array(value), 0.4)
    causal = np.where(np.tri(L, dtype=bool), 0.0, -np.inf)
    check(
        actual, attention_oracle(query, key, value, 0.4, causal), name="what attend returns", axes="B H L D"
    )


# Task 2: the attention layer


def raw_heads(tensors: dict[str, np.ndarray], x: np.ndarray, part: int) -> np.ndarray:
    """The query, key or value heads (part 0, 1 or 2) of x [B, L, E] without a norm: [B, L, heads, D]."""
    plain = {name: tensor for name, tensor in tensors.items() if name.split(".")[-2] not in QK_NORMS}
    return np.array([[oracle.project(plain, LAYER, token)[part] for token in row] for row in x])


def rotated(heads: np.ndarray, start: int) -> np.ndarray:
    """Heads [B, L, heads, D] of tokens that stand at ``start`` and after it."""
    return np.array(
        [[[oracle.rotate(head, start + i) for head in token] for i, token in enumerate(row)] for row in heads]
    )


def projection_suspects(tensors: dict[str, np.ndarray], x: np.ndarray, part: int) -> dict[str, np.ndarray]:
    """What the usual mistakes make of the query, key or value heads (part 0, 1 or 2)."""
    weights = {name: tensors.get(f"{LAYER}.{name}_norm.weight", np.ones(D)) for name in ("query", "key")}
    raw = [raw_heads(tensors, x, i) for i in range(3)]
    flat = np.concatenate(raw, axis=2)
    key_first = flat[:, :, HKV : HKV + H], flat[:, :, :HKV], flat[:, :, H + HKV :]
    other = oracle.rms_norm_rows(raw[part], weights["query" if part == 1 else "key"])
    wrong = {
        "the norms of Qwen3 are left out": raw[part],
        "the projection is cut in the order key, query, value: queries come first": key_first[part],
        "the values were normalized" if part == 2 else "the norm of the other part is used": other,
    }
    return {**wrong, "keys and values are exchanged": raw[3 - part]} if part else wrong


@pytest.mark.parametrize("family", FAMILIES)
def test_task_2_the_projection_is_cut_into_query_key_and_value_heads(lab, family):
    x = normal(20, B, L, E)
    tensors = oracle.random_tensors(family)
    parts = [[oracle.project(tensors, LAYER, token) for token in row] for row in x]
    actual = attention_layer(lab, family).project(lab.array(x))
    check_equal(len(actual), 3, name="how many arrays project returns")
    for i, name in enumerate(("query", "key", "value")):
        expected = np.array([[token[i] for token in row] for row in parts])
        suspects = projection_suspects(tensors, x, i)
        check_deep(actual[i], expected, name=f"the {name} heads", axes="B L Heads D", suspects=suspects)


@pytest.mark.parametrize("alone", QK_NORMS)
def test_task_2_each_of_the_two_norms_works_without_the_other(lab, alone):
    x, tensors = normal(27, B, L, E), oracle.random_tensors("qwen3")
    actual = attention_layer(lab, "qwen3", norms=(alone,)).project(lab.array(x))
    for i, name in enumerate(("query", "key", "value")):
        normed = np.array([[oracle.project(tensors, LAYER, token)[i] for token in row] for row in x])
        raw = raw_heads(tensors, x, i)
        check_deep(
            actual[i],
            normed if alone == f"{name}_norm" else raw,
            name=f"the {name} heads of a layer whose only norm is {alone}",
            axes="B L Heads D",
            suspects={"the norm is left out: one of the two may be there without the other": raw},
        )


def test_task_2_a_learned_norm_comes_before_the_rotation(lab):
    """The weight of the norm differs along D, so that turning first gives other numbers."""
    x = normal(21, B, L, E)
    layer = attention_layer(lab, "qwen3")
    cache = RecordingCache(lab)
    layer(lab.array(x), layer.rope.angles(slice(3, 3 + L)), cache)
    tensors = oracle.random_tensors("qwen3")
    for index, name in ((0, "query"), (1, "key")):
        heads = np.array([[oracle.project(tensors, LAYER, token)[index] for token in row] for row in x])
        turned = rotated(heads, 3)
        raw = raw_heads(tensors, x, index)
        weight = tensors[f"{LAYER}.{name}_norm.weight"]
        check_deep(
            getattr(cache.calls[0], name),
            turned.transpose(0, 2, 1, 3),
            name=f"the {name} given to the cache",
            axes="B H L D",
            suspects={
                "it was normalized, and not rotated": heads.transpose(0, 2, 1, 3),
                "it was rotated before it was normalized": oracle.rms_norm_rows(
                    rotated(raw, 3), weight
                ).transpose(0, 2, 1, 3),
                "it was rotated twice": rotated(rotated(heads, 3), 3).transpose(0, 2, 1, 3),
                "it was rotated, and not normalized": rotated(raw, 3).transpose(0, 2, 1, 3),
            },
        )


def test_task_2_the_cache_gets_rotated_queries_and_keys_and_plain_values(lab):
    x = normal(22, B, L, E)
    layer = attention_layer(lab, "llama")
    cache = RecordingCache(lab)
    layer(lab.array(x), layer.rope.angles(slice(2, 2 + L)), cache)
    check_equal(len(cache.calls), 1, name="calls of attend in one layer")
    call = cache.calls[0]
    tensors = oracle.random_tensors("llama")
    parts = [[oracle.project(tensors, LAYER, token) for token in row] for row in x]
    for index, name in enumerate(("query", "key", "value")):
        flat = np.array([[token[index] for token in row] for row in parts])
        turned = rotated(flat, 2)
        flat, turned = flat.transpose(0, 2, 1, 3), turned.transpose(0, 2, 1, 3)
        right, other, mistake = (
            (flat, turned, "it was rotated; only queries and keys are")
            if name == "value"
            else (turned, flat, "it was not rotated")
        )
        check_deep(
            getattr(call, name),
            right,
            name=f"the {name} given to the cache",
            axes="B Heads L D",
            suspects={mistake: other},
        )
    check(
        call.scale,
        D**-0.5,
        name="the scale given to the cache",
        suspects={"it is 1/√E, for the whole vector: a head has D numbers": E**-0.5},
    )


def test_task_2_the_output_is_made_of_what_the_cache_returns(lab):
    answer = normal(23, B, H, L, D)
    layer = attention_layer(lab, "llama")
    actual = layer(
        lab.array(normal(24, B, L, E)), layer.rope.angles(slice(0, L)), RecordingCache(lab, answer)
    )
    out = oracle.random_tensors("llama")[f"{LAYER}.attention_out.weight"]
    check(
        actual,
        answer.transpose(0, 2, 1, 3).reshape(B, L, H * D) @ out.T,
        name="the layer's output",
        axes="B L E",
        suspects={
            "heads and tokens were not swapped back before merging": lambda: (
                answer.reshape(B, L, H * D) @ out.T
            )
        },
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_task_2_a_whole_layer_without_a_cache(lab, family):
    x = normal(25, B, L, E)
    layer = attention_layer(lab, family)
    actual = layer(lab.array(x), layer.rope.angles(slice(4, 4 + L)), lab.kv_cache.NoCache())
    tensors = oracle.random_tensors(family)
    expected = np.stack([oracle.attention_layer(tensors, LAYER, row, np.arange(4, 4 + L)) for row in x])
    check_deep(actual, expected, name="the layer's output", axes="B L E")


def test_task_2_the_input_of_a_layer_is_left_as_it_was(lab):
    layer = attention_layer(lab, "llama")
    x = lab.array(normal(28, B, L, E))
    layer(x, layer.rope.angles(slice(0, L)), lab.kv_cache.NoCache())
    check_untouched(x, normal(28, B, L, E), name="the layer's input", axes="B L E")


def test_task_2_a_layer_stays_in_the_dtype_of_its_input(lab):
    tensors = oracle.random_tensors("llama")
    weight = {
        name: lab.array(tensors[f"{LAYER}.{name}.weight"], "bfloat16") for name in ("qkv", "attention_out")
    }
    rope = lab.positional_encoding.RoPE(D, oracle.MAX_POSITIONS, oracle.ROPE_BASE, device=lab.device)
    linear = lab.layers.Linear
    layer = lab.model.Attention(linear(weight["qkv"]), linear(weight["attention_out"]), rope, H, HKV, D)
    x = lab.array(normal(26, B, L, E), "bfloat16")
    actual = layer(x, rope.angles(slice(0, L)), lab.kv_cache.NoCache())
    expected = np.stack(
        [oracle.attention_layer(tensors, LAYER, row, np.arange(L)) for row in lab.numpy(x).astype(np.float64)]
    )
    # Weights, projections and scores are each rounded to 8 bits.
    check(actual, expected, name="the layer's output", axes="B L E", dtype="bfloat16", rtol=0.05, atol=0.08)


# Task 3: the block


def test_task_3_each_part_sees_a_normalized_copy_and_is_added_to_the_stream(lab):
    """Four stand-ins for the parts, each a matrix or a scale of its own."""
    scale, other = normal(30, E), normal(31, E)
    mixing, feeding = normal(32, E, E) / 4, normal(33, E, E) / 4
    x = normal(34, B, L, E)

    def stand_in(compute):
        return lambda array, *rest: lab.array(compute(lab.numpy(array).astype(np.float64)))

    block = lab.model.TransformerBlock(
        stand_in(lambda v: v * scale),
        stand_in(lambda v: v @ mixing),
        stand_in(lambda v: v * other),
        stand_in(lambda v: v @ feeding),
    )

    def add(stream):
        """The second line of the block."""
        return stream + (stream * other) @ feeding

    middle = x + (x * scale) @ mixing
    expected = add(middle)
    check(
        block(lab.array(x), None, None),
        expected,
        name="the block's output",
        axes="B L E",
        suspects={
            "the MLP's result is not added to the stream": lambda: (middle * other) @ feeding,
            "the MLP was given the stream as it was before attention": lambda: middle + (x * other) @ feeding,
            "the MLP's result was added to the stream as it was before attention": lambda: (
                x + (middle * other) @ feeding
            ),
            "the two norms are exchanged": lambda: (
                (x + (x * other) @ mixing) + ((x + (x * other) @ mixing) * scale) @ feeding
            ),
            "attention is given the stream as it is, not a normalized copy": lambda: add(x + x @ mixing),
            "the MLP is given the stream as it is, not a normalized copy": lambda: middle + middle @ feeding,
            "attention's result is not added to the stream": lambda: add((x * scale) @ mixing),
            "attention's result is added to the normalized copy, not to the stream": lambda: add(
                x * scale + (x * scale) @ mixing
            ),
            "the MLP's result is added to the normalized copy, not to the stream": lambda: (
                middle * other + (middle * other) @ feeding
            ),
            "the norm comes after the sum: it makes the copy that a part reads": lambda: (
                (middle + middle @ feeding) * other
            ),
            "the norm of attention is used for both parts": lambda: middle + (middle * scale) @ feeding,
            "the norm of the MLP is used for both parts": lambda: add(x + (x * other) @ mixing),
        },
    )


def test_task_3_attention_is_given_the_angles_and_the_cache(lab):
    seen = []

    def attention(x, angles, cache):
        seen.append((angles, cache))
        return x

    def same(x):
        return x

    angles, cache = (object(), object()), object()
    lab.model.TransformerBlock(same, attention, same, same)(lab.array(normal(35, B, L, E)), angles, cache)
    check_equal(len(seen), 1, name="calls of the attention layer")
    assert seen[0][0] == angles, "attention must be given the angles that the block was given"
    assert seen[0][1] is cache, "attention must be given the cache that the block was given"


def test_task_3_the_input_is_left_as_it_was(lab):
    def same(y, *rest):
        return y

    block = lab.model.TransformerBlock(same, same, same, same)
    check_leaves_alone(lab, lambda x: block(x, None, None), the_stream=normal(36, B, L, E))


# Task 4: the transformer


@pytest.mark.parametrize("family", FAMILIES)
def test_task_4_logits_of_every_family(lab, family):
    model, tensors = transformer(lab, family)
    tokens = token_ids()
    expected = oracle.logits(tensors, oracle.hidden(tensors, tokens, run_of(0)))
    actual = model(lab.array(tokens), slice(0, L))
    ones = {**tensors, "norm.weight": np.ones(E)}
    tied = {name: tensor for name, tensor in tensors.items() if name != "head.weight"}
    louder = {**tied, "head.weight": tensors.get("head.weight", tensors["embedding.weight"])}
    louder["embedding.weight"] = tensors["embedding.weight"] * np.sqrt(E)

    def logits(given):
        return lambda: oracle.logits(given, oracle.hidden(given, tokens, run_of(0)))

    check_deep(
        actual,
        expected,
        name=f"the logits of a {family} model",
        axes="B L V",
        suspects={
            "the last norm's weight is not applied": logits(ones),
            "the last norm is left out": lambda: oracle.logits(
                tensors, oracle.stream(tensors, tokens, run_of(0))
            ),
            "the embedding is used as the head: this model has a head of its own": logits(tied),
            "the embedded vectors are multiplied by √E": logits(louder),
            "the vectors are normalized once more before the head": lambda: oracle.logits(
                tensors,
                oracle.rms_norm_rows(oracle.hidden(tensors, tokens, run_of(0)), tensors["norm.weight"]),
            ),
        },
    )


def test_task_4_the_last_norm_belongs_to_hidden(lab):
    model, tensors = transformer(lab)
    tokens = token_ids()
    expected = oracle.hidden(tensors, tokens, run_of(0))
    flat = {**tensors, "norm.weight": np.ones(E)}
    check_deep(
        model.hidden(lab.array(tokens), slice(0, L)),
        expected,
        name="the hidden states",
        axes="B L E",
        suspects={"the last norm's weight is not applied": lambda: oracle.hidden(flat, tokens, run_of(0))},
    )


@pytest.mark.parametrize(
    ("positions", "places"),
    [
        (slice(9, 9 + L), run_of(9)),
        (np.array([2, 3, 7, 8, 11]), np.tile([2, 3, 7, 8, 11], (B, 1))),
        (np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 12]]), np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 12]])),
    ],
    ids=["a slice", "an array L", "an array B L"],
)
def test_task_4_tokens_stand_where_positions_says(lab, positions, places):
    model, tensors = transformer(lab)
    tokens = token_ids()
    given = positions if isinstance(positions, slice) else lab.array(positions)
    check_deep(
        model.hidden(lab.array(tokens), given),
        oracle.hidden(tensors, tokens, places),
        name="the hidden states",
        axes="B L E",
        suspects={
            "the tokens were counted from position 0": lambda: oracle.hidden(tensors, tokens, run_of(0))
        },
    )


def test_task_4_a_slice_for_each_row_goes_to_rope_as_it_is(lab):
    """RoPE learns to read a list of slices in Week 2; the model must only pass it on."""
    model, tensors = transformer(lab)
    places = np.array([run_of(0)[0], run_of(7)[0]])
    seen = []
    look_up = model.rope.angles

    def angles(positions):
        seen.append(positions)
        return look_up(lab.array(places))

    model.rope.angles = angles
    tokens = token_ids()
    rows = [slice(0, L), slice(7, 7 + L)]
    actual = model.hidden(lab.array(tokens), rows)
    check_equal(len(seen), 1, name="how often rope.angles was called (all layers share one look-up)")
    check_equal(seen, [rows], name="what rope.angles was given")
    expected = oracle.hidden(tensors, tokens, places)
    check_deep(actual, expected, name="the hidden states", axes="B L E")


def test_task_4_tokens_and_the_list_of_caches_are_left_as_they_were(lab):
    model, _ = transformer(lab)
    caches = [RecordingCache(lab) for _ in range(LAYERS)]
    given, tokens = list(caches), lab.array(token_ids())
    model.hidden(tokens, slice(0, L), given)
    assert given == caches, (
        f"the caller's list of {LAYERS} caches was changed: {len(given)} are left, or they stand in another order"
    )
    check_equal(lab.numpy(tokens).tolist(), token_ids().tolist(), name="the token ids, afterwards")


def test_task_4_each_layer_has_its_own_cache(lab):
    model, tensors = transformer(lab)
    caches = [RecordingCache(lab) for _ in range(LAYERS)]
    tokens = token_ids()
    model.hidden(lab.array(tokens), slice(0, L), caches)
    check_equal(
        [len(cache.calls) for cache in caches],
        [1] * LAYERS,
        name="calls of each layer's cache",
        suspects={"all layers share the first cache: each has its own": [LAYERS] + [0] * (LAYERS - 1)},
    )
    # The caches answer with zeros, so attention adds nothing to the stream and only the MLPs do.
    x = tensors["embedding.weight"][tokens]
    for i, cache in enumerate(caches):
        block = f"blocks.{i}"
        attention_norm, mlp_norm = (tensors[f"{block}.{name}_norm.weight"] for name in ("attention", "mlp"))
        expected = [
            [oracle.project(tensors, block, oracle.rms_norm(v, attention_norm))[2] for v in row] for row in x
        ]
        check_deep(
            cache.calls[0].value,
            np.array(expected).transpose(0, 2, 1, 3),
            name=f"the values given to cache {i}",
            axes="B Hkv L D",
        )
        x = np.array(
            [[v + oracle.mlp(tensors, block, oracle.rms_norm(v, mlp_norm)) for v in row] for row in x]
        )


@pytest.mark.parametrize("first", [1, 3, L + 1])
def test_task_4_a_sequence_in_two_calls_is_the_sequence_in_one(lab, first):
    length = L + 2
    model, tensors = transformer(lab, "qwen3")
    tokens = token_ids(length=length)
    caches = [RememberingCache(lab) for _ in range(LAYERS)]
    model.hidden(lab.array(tokens[:, :first]), slice(0, first), caches)
    actual = model.hidden(lab.array(tokens[:, first:]), slice(first, length), caches)
    expected = oracle.hidden(tensors, tokens, run_of(0, length=length))[:, first:]
    check_deep(actual, expected, name="the second call's states", axes="B L E")


def test_task_4_the_weights_are_left_as_they_were(lab):
    model, tensors = transformer(lab)
    for _ in range(2):
        actual = model(lab.array(token_ids()), slice(0, L))
    expected = oracle.logits(tensors, oracle.hidden(tensors, token_ids(), run_of(0)))
    check_deep(actual, expected, name="the logits of a second call", axes="B L V")


def test_task_4_a_model_in_bfloat16_stays_in_bfloat16(lab):
    model = real_model(lab, "llama", lambda x: lab.array(x, "bfloat16"))
    states = model.hidden(lab.array(token_ids()), slice(0, L))
    for name, array in (("the hidden states", states), ("the logits", model.logits(states))):
        found = lab.dtype(array)
        assert found == "bfloat16", f"{name} of a model in bfloat16 must be bfloat16; they are {found}"


@pytest.mark.parametrize("count", [0, LAYERS - 1, LAYERS + 1])
def test_task_4_a_wrong_number_of_caches_is_refused_before_any_is_used(lab, count):
    model, _ = transformer(lab)
    caches = [RecordingCache(lab) for _ in range(count)]
    check_raises(
        ValueError,
        lambda: model.hidden(lab.array(token_ids()), slice(0, L), caches),
        name=f"{count} caches for {LAYERS} layers",
    )
    check_equal(
        sum(len(cache.calls) for cache in caches), 0, name="caches used although their number is wrong"
    )


@pytest.mark.parametrize("given", [1, L - 1, L + 1])
def test_task_4_as_many_positions_as_tokens_are_needed(lab, given):
    model, _ = transformer(lab)
    tokens = lab.array(token_ids())
    check_raises(
        ValueError,
        lambda: model.hidden(tokens, slice(0, given)),
        name=f"{given} positions for {L} tokens",
    )


def test_task_4_hidden_leaves_the_head_alone_and_logits_calls_it(lab):
    model, tensors = transformer(lab)
    head, rows = model.head, []

    def counting(x):
        rows.append(int(np.prod(tuple(x.shape)[:-1])))
        return head(x)

    model.head = counting
    states = model.hidden(lab.array(token_ids()), slice(0, L))
    check_equal(rows, [], name="rows that hidden sent through the head")
    actual = model.logits(states)
    check_equal(rows, [B * L], name="rows that logits sent through the head")
    check(
        actual,
        oracle.logits(tensors, lab.numpy(states)),
        name="the logits",
        axes="B L V",
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("shape", [(E,), (3, E), (B, 3, E)], ids=["E", "rows E", "B L E"])
def test_task_4_logits_takes_only_the_rows_it_is_given(lab, family, shape):
    model, tensors = transformer(lab, family)
    states = normal(40, *shape)
    expected = oracle.logits(tensors, states)
    check(model.logits(lab.array(states)), expected, name="the logits", rtol=1e-5, atol=1e-5)


def test_task_4_a_call_remembers_nothing_of_the_call_before(lab):
    model, _ = transformer(lab, "qwen2")
    tokens = lab.array(token_ids())
    before = lab.numpy(model(tokens, slice(0, L)))
    model(lab.array(token_ids()[:, ::-1].copy()), slice(0, L))
    check(
        model(tokens, slice(0, L)), before, name="the logits, the second time", axes="B L V", rtol=0, atol=0
    )


def test_task_4_later_tokens_change_nothing_before_them(lab):
    model, _ = transformer(lab)
    tokens = token_ids()
    other = tokens.copy()
    other[:, 3:] = (other[:, 3:] + 1) % V
    before = lab.numpy(model.hidden(lab.array(tokens), slice(0, L)))[:, :3]
    after = lab.numpy(model.hidden(lab.array(other), slice(0, L)))[:, :3]
    check_deep(after, before, name="the states of the tokens before", axes="B L E", framework="numpy")


def test_task_4_one_token_alone_is_a_sequence_too(lab):
    model, tensors = transformer(lab)
    tokens = token_ids(rows=1, length=1)
    expected = oracle.logits(tensors, oracle.hidden(tensors, tokens, np.array([[6]])))
    actual = model(lab.array(tokens), slice(6, 7))
    check_deep(actual, expected, name="the logits", axes="B L V")
