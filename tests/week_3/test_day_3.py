"""Day 3.3: attention over pages as a compiled kernel, and by torch's fused attention for many queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_1 import numpy_model
from week_2.continuous import prompt_of
from week_2.decode_oracle import DTYPES, TILE, random_numbers
from week_2.packed import on_cpu

from coursekit import lab as door
from coursekit.check import check, check_equal

from .paged_kernel import TIGHT, check_fold_tile, check_load, padded, sequence
from .paged_parts import PART, UNUSED, check_pages, check_part
from .pages import allocator_of, spoil
from .ragged import CASES, Mistakes, RaggedStep, check_merged, check_step, pair_of, random_steps
from .ragged_step import NOTHING, Seen, attend_alone, bottom_right, everything

PAGE_SIZES = (1, 3, 16, 24)  # a tile of 64 is a whole number of pages of 1 and 16, and not of 3 and 24
FEW = 8  # FEW_QUERIES
QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"pages of {P}")
causal_or_not = pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture
def cpu_kernel(lab):
    return lab.kernels.paged_attention_cpu


@pytest.fixture
def auto(lab):
    return lab.kernels.paged_attention_auto


# Task 1: a tile out of pages


@dtypes
@sizes_of_pages
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 64), (64, 65), (64, 128), (128, 159)])
def test_task_1_a_tile_is_brought_together_out_of_its_pages(cpu_kernel, start, stop, P, dtype):
    check_load(cpu_kernel, sequence(71, 159, P, dtype=dtype), start, stop)


@sizes_of_pages
def test_task_1_what_stands_behind_the_last_token_is_not_read(cpu_kernel, P):
    for kv_len in (P - 1, P, P + 1, 2 * P):
        if kv_len:
            check_load(cpu_kernel, sequence(72, kv_len, P), 0, kv_len)


def test_task_1_a_tile_may_begin_anywhere(cpu_kernel):
    for start, stop in ((5, 6), (4, 60), (17, 81)):
        check_load(cpu_kernel, sequence(73, 90, 3), start, stop)


def test_task_1_bfloat16_is_widened_to_the_same_number(cpu_kernel):
    """The largest and the smallest that bfloat16 has, a zero with a sign, infinities."""
    upper = np.array([0x7F7F, 0x0080, 0x0001, 0x8000, 0x7F80, 0xFF80, 0x3F80, 0xC049], np.uint16)
    pages, tile = upper.view(np.int16).reshape(1, 1, 1, 8), np.zeros((1, TILE, 8), np.float32)
    cpu_kernel.load_tile(pages, padded([0], 1), 0, 1, tile)
    bits = tile[0, 0].view(np.uint32).tolist()
    check_equal(bits, [int(x) << 16 for x in upper], name="the bits of the widened numbers, as float32")


# Task 2: the softmax of a tile


@pytest.mark.parametrize(
    ("start", "stop", "first_seen"),
    [(0, 64, 200), (0, 9, 6), (64, 128, 62), (64, 128, 64), (64, 128, 65), (128, 191, 189), (64, 127, 1)],
)
def test_task_2_each_token_sees_its_own_share_of_the_tile(cpu_kernel, start, stop, first_seen):
    check_fold_tile(cpu_kernel, start, stop, first_seen)


def test_task_2_any_number_of_tokens_and_heads(cpu_kernel):
    for L, group in ((1, 1), (1, 3), (5, 1), (2, 5), (7, 2)):
        check_fold_tile(cpu_kernel, 64, 100, 97, L, group)


# Task 3: one part of one sequence


@pytest.mark.parametrize("kv_len", [1, 2, 63, 64, 65, 127, 128, 129])
def test_task_3_one_token_attends_to_its_past(cpu_kernel, kv_len):
    check_part(cpu_kernel, sequence(74, kv_len, 16), 0, kv_len, kv_len)


@sizes_of_pages
@pytest.mark.parametrize(("L", "kv_len"), [(2, 66), (5, 5), (7, 130)])
def test_task_3_several_tokens_see_one_key_more_each(cpu_kernel, L, kv_len, P):
    check_part(cpu_kernel, sequence(75, kv_len, P, L), 0, kv_len, kv_len - L + 1)


@pytest.mark.parametrize(("start", "stop"), [(0, 70), (64, 130), (37, 101), (37, 38), (130, 200)])
def test_task_3_a_part_begins_and_ends_anywhere(cpu_kernel, start, stop):
    """Keys before and behind it belong to the sequence, too, but to other parts."""
    step = sequence(76, 200, 3, 3)
    check_part(cpu_kernel, step, start, stop, 198)
    check_part(cpu_kernel, step, start, stop, 200)


@pytest.mark.parametrize("first_seen", [0, 95, 96, 97, 98, 100])
def test_task_3_a_token_that_sees_nothing_of_the_part_gets_zeros_and_minus_infinity(cpu_kernel, first_seen):
    check_part(cpu_kernel, sequence(77, 150, 16, 5), 98, 150, first_seen)


@pytest.mark.parametrize("sizes", [(1, 1, 8), (3, 1, 5), (1, 4, 8), (2, 5, 16)])
def test_task_3_heads_and_groups_are_kept_apart(cpu_kernel, sizes):
    check_part(cpu_kernel, sequence(78, 70, 16, 3, sizes=sizes), 0, 70, 68)


@pytest.mark.parametrize("scale", [40.0, -40.0])
def test_task_3_large_scores_do_no_harm(cpu_kernel, scale):
    # Scores of some 200, which float32 rounds at 1e-5.
    step = sequence(79, 131, 3, 4, scale=scale)
    check_part(cpu_kernel, step, 0, 131, 128, rtol=1e-4, atol=5e-5)


def test_task_3_scores_whose_exponentials_are_0_count_like_others(cpu_kernel):
    """Scores near −170. Only their differences count: the first peak is −inf, and not 0."""
    step = sequence(103, 70, 16, 3, sizes=(1, 2, 20))
    step.query[:] = 1.0
    step.keys[:] = (-20.0 - np.abs(step.keys)).astype(np.float32)
    check_part(cpu_kernel, step, 0, 70, 68, rtol=1e-4, atol=5e-5)


def test_task_3_the_pages_may_be_bfloat16(cpu_kernel):
    check_part(cpu_kernel, sequence(80, 131, 3, 2, dtype="bfloat16"), 0, 131, 130)


# Task 4: all sequences, dealt to the threads


@pytest.mark.parametrize(
    ("kv_lens", "rows"),
    [
        ([2500, 300, 1024], [0, 1, 2]),
        ([1], [0]),
        ([1023, 1024, 1025, 2047, 2048, 2049], [0, 1, 2, 3, 4, 5]),
        ([2500, 300, 1024, 5000], [3, 1]),
        ([700, 300, 900, 40], [2, 0, 1, 3]),
        ([0, 5, 0], [0, 1, 2]),
        ([5, 6], []),
    ],
)
def test_task_4_pasts_are_cut_into_parts_the_longest_first(cpu_kernel, kv_lens, rows):
    tasks = cpu_kernel.deal(np.array(kv_lens, np.int32), np.array(rows, np.int32))
    parts = [(row, start // PART) for row in rows for start in range(0, kv_lens[row], PART)]
    where = f"of sequences {rows} of {kv_lens} keys"
    check(
        tasks[np.lexsort(tasks.T)] if len(tasks) else tasks,
        np.array(sorted(parts, key=lambda task: (task[1], task[0])), np.int64).reshape(-1, 2),
        name=f"the tasks {where}, sorted by part",
        axes="tasks 2",
        dtype="int32",
        framework="numpy",
    )
    sizes = [min(PART, kv_lens[row] - part * PART) for row, part in tasks.tolist()]
    check_equal(sizes, sorted(sizes, reverse=True), name=f"how many keys each task has, {where}")


def test_task_4_the_workers_take_the_cards_in_turns(cpu_kernel, monkeypatch):
    """In plain Python, where the workers run one after the other and each card can be noted."""
    kv_lens, workers = np.array([3000, 300, 1024, 500, 2100], np.int32), 3
    taken: list[tuple[int, int]] = []

    def note(query, keys, values, table, start, stop, *rest):
        taken.append((int(table[0]), int(start) // PART))

    monkeypatch.setattr(cpu_kernel, "attend_part", note)
    monkeypatch.setattr(cpu_kernel, "prange", range)
    rows, tables = np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32)[:, None]
    pages = np.zeros((5, 16, 1, 4), np.float32)
    parts = np.zeros((3, 5, 1, 4), np.float32), np.zeros((3, 5, 1), np.float32)
    cpu_kernel.attend_pages.py_func(
        np.zeros((5, 1, 1, 4), np.float32),
        pages,
        pages,
        np.arange(6, dtype=np.int32),
        kv_lens,
        tables,
        rows,
        np.float32(1),
        True,
        workers,
        *parts,
    )
    cards = [(row, part) for row, part in cpu_kernel.deal(kv_lens, rows).tolist()]
    dealt = [card for worker in range(workers) for card in cards[worker::workers]]
    check_equal(
        taken, dealt, name=f"the cards (row, part) as {workers} workers take them, worker after worker"
    )


MIXED = [(PART + 70, 3), (5, 5), (9, 1), (64, 2), (130, 4)]


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_task_4_every_task_is_done_by_some_worker(cpu_kernel, workers):
    check_pages(cpu_kernel, RaggedStep.random(81, MIXED, 16), workers=workers)


@causal_or_not
@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
def test_task_4_each_sequence_attends_to_its_own_pages(cpu_kernel, case, P, causal):
    check_pages(cpu_kernel, RaggedStep.random(82, CASES[case](P), P), causal=causal)


@causal_or_not
@pytest.mark.parametrize(("kv_len", "L"), [(1023, 2), (1024, 1), (1025, 3), (2048, 2), (2500, 1)])
def test_task_4_each_part_has_its_own_keys(cpu_kernel, kv_len, L, causal):
    check_pages(cpu_kernel, RaggedStep.random(83, [(kv_len, L), (3, 1)], 16), causal=causal)


@pytest.mark.parametrize("rows", [[1], [3, 0], [0, 2, 4], []], ids=str)
def test_task_4_only_the_rows_asked_for_are_touched(cpu_kernel, rows):
    check_pages(cpu_kernel, RaggedStep.random(84, MIXED, 3), rows)


def test_task_4_sequences_may_share_pages(cpu_kernel):
    step = RaggedStep.random(85, [(40, 3), (37, 1), (55, 2)], 16, shared=2)
    check_equal(step.tables[0][:2], step.tables[1][:2], name="the pages that two sequences share")
    check_pages(cpu_kernel, step, workers=3)


def test_task_4_the_pages_may_be_bfloat16(cpu_kernel):
    check_pages(cpu_kernel, RaggedStep.random(86, MIXED, 3, dtype="bfloat16"))


# Task 5: from torch and back


HALF: dict[str, Any] = {
    "rtol": 1.6e-2,
    "atol": 1e-2,
}  # torch's fused attention rounds weights to bfloat16, also in the log-sum-exp


def check_paged(
    lab: Any, attention: Callable[..., Any], step: RaggedStep, causal: bool = True, **told: Any
) -> None:
    __tracebackhide__ = True
    options = TIGHT if step.dtype == "float32" else {}
    check_step(lab, attention, step, causal=causal, device="cpu", **options, **told)


@causal_or_not
@dtypes
@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
def test_task_5_a_step_of_any_sequences(lab, cpu_kernel, case, P, dtype, causal):
    step = RaggedStep.random(87, CASES[case](P), P, dtype=dtype)
    check_paged(lab, cpu_kernel.paged_attention_cpu, step, causal)


@causal_or_not
@QUICK
@given(step=random_steps())
def test_task_5_any_random_step(step, causal):
    lab = door.active()
    check_paged(lab, lab.kernels.paged_attention_cpu.paged_attention_cpu, step, causal)


UNINITIALIZED = (
    "some numbers are as `empty` leaves them, here NaN: for the parts that a sequence doesn't have, the arrays begin "
    "with zeros, and −inf in the log-sum-exp"
)


def with_nan_in_empty(lab: Any, monkeypatch: pytest.MonkeyPatch, attention: Any) -> Callable[..., Any]:
    """The function, in whose calls NumPy's `empty` and torch's give NaN, as they may at any time."""

    def spoilt(empty: Callable[..., Any]) -> Callable[..., Any]:
        def filled(*size: Any, **options: Any) -> Any:
            array = empty(*size, **options)
            if "float" in str(array.dtype):
                array[...] = float("nan")
            return array

        return filled

    def attend(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            for module in (np, lab.kernels.paged_attention_cpu.torch):
                patch.setattr(module, "empty", spoilt(module.empty))
            return attention(*arguments)

    return attend


def parts_that_count(step: RaggedStep, causal: bool) -> Mistakes:
    """Where the parts that a sequence doesn't have hold a log-sum-exp of 0: they are merged like real ones."""

    def mistake() -> tuple[np.ndarray, np.ndarray]:
        out, lse = step.expected(causal)
        counts = [-(-kv_len // PART) for kv_len in step.kv_lens]
        missing = np.repeat(max(counts) - np.array(counts), step.q_lens)[:, None]
        total = np.log(np.exp(lse) + missing)
        return out * np.exp(lse - total)[..., None], total

    why = "the log-sum-exp of the parts that a sequence doesn't have is 0, so they count: it must be −inf"
    return {why: mistake}


@causal_or_not
@pytest.mark.parametrize("dtype", DTYPES)
def test_task_5_long_pasts_are_put_together_from_parts(lab, cpu_kernel, monkeypatch, dtype, causal):
    """The second sequence has three parts, the others have two or one: the rest of their parts must not count."""
    lengths = [(PART + 1, 2), (2 * PART + 1, 1), (PART, 3), (PART - 1, 1), (9, 1)]
    step = RaggedStep.random(88, lengths, 16, dtype=dtype)
    attention = with_nan_in_empty(lab, monkeypatch, cpu_kernel.paged_attention_cpu)
    check_paged(lab, attention, step, causal, mistakes=parts_that_count(step, causal), nan=UNINITIALIZED)


def test_task_5_each_part_counts_by_its_log_sum_exp(lab, cpu_kernel):
    """With a large scale one part has nearly all the weight."""
    step = RaggedStep.random(89, [(2 * PART + 70, 2), (30, 1)], 16, scale=6.0)
    check_step(lab, cpu_kernel.paged_attention_cpu, step, device="cpu", rtol=1e-4, atol=2e-5)


@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
def test_task_5_two_sets_of_pages_merged_give_the_whole(lab, cpu_kernel, case, P):
    step = RaggedStep.random(90, CASES[case](P), P)
    for pages in (1, 2):
        check_merged(lab, cpu_kernel.paged_attention_cpu, step, pages, device="cpu", **TIGHT)


@pytest.mark.parametrize("rows", [[0], [2, 1], [3], []], ids=str)
def test_task_5_sequences_that_are_not_asked_for_get_zeros_and_minus_infinity(lab, cpu_kernel, rows):
    step = RaggedStep.random(91, [(PART + 9, 2), (5, 5), (9, 1), (70, 3)], 3)
    wanted = [part.copy() for part in step.expected()]
    for b in set(range(4)) - set(rows):
        tokens = slice(step.starts[b], step.starts[b + 1])
        wanted[0][tokens], wanted[1][tokens] = 0, NOTHING
    arguments = [*step.arguments(lab, "cpu"), step.meta(lab, "cpu"), step.scale]
    actual = pair_of(cpu_kernel.paged_attention_cpu(*arguments, rows=rows), "paged_attention_cpu")
    empty = "`rows` without any number was taken for None: test it with `is None`"
    cause = "`rows` was ignored" if rows else empty
    for place, name, axes in ((0, "attention", "T H D"), (1, "the log-sum-exp", "T H")):
        check(
            actual[place],
            wanted[place],
            name=f"{name} with rows={rows} of 4 sequences",
            axes=axes,
            nan=UNUSED,
            suspects={cause: step.expected()[place]},
            **TIGHT,
        )


@pytest.mark.parametrize(("query", "pool"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_task_5_the_result_has_the_dtype_of_the_query_and_is_computed_in_float32(
    lab, cpu_kernel, query, pool
):
    step = RaggedStep.random(92, [(PART + 9, 2), (9, 1), (5, 5)], 16, dtype="bfloat16")
    _, keys, values = (on_cpu(lab, x, pool) for x in (step.query, step.keys, step.values))
    queries = on_cpu(lab, step.query, query)
    out, lse = pair_of(
        cpu_kernel.paged_attention_cpu(queries, keys, values, step.meta(lab, "cpu"), step.scale),
        "paged_attention_cpu",
    )
    wanted = step.expected()
    options = TIGHT if query == "float32" else {}
    name = f"attention of {query} queries over {pool} pages"
    check(out, wanted[0], name=name, axes="T H D", dtype=query, nan=UNUSED, **options)
    check(lse, wanted[1], name="the log-sum-exp, float32 in any case", axes="T H", nan=UNUSED, **TIGHT)


@dtypes
def test_task_5_pages_are_read_where_they_lie(lab, cpu_kernel, dtype):
    """Neither the past is gathered nor the pool widened: what is made is as large as the result, for each part."""
    step = RaggedStep.random(93, [(900, 1), (700, 2)], 16, dtype=dtype)
    arguments = [*step.arguments(lab, "cpu"), step.meta(lab, "cpu"), step.scale]
    _, largest = lab.largest_array(cpu_kernel.paged_attention_cpu, *arguments)
    past = 700 * step.keys.shape[2] * step.keys.shape[3]
    assert largest < past, f"an array of {largest} numbers was made: keys or values were copied on the way"


def run_batch(lab: Any, attention: Callable[..., Any], chunk_size: int) -> list[list[int]]:
    """Four requests by continuous batching on pages, with the model of Week 1."""
    config = lab.config.ModelConfig(**numpy_model.config_fields("llama"))
    tensors = numpy_model.random_tensors("llama")
    model = lab.model.Transformer(
        config, lab.weights.Weights(config, {name: on_cpu(lab, x) for name, x in tensors.items()})
    )
    pool = lab.paged.pool.KvPool(config, 40, 3, device="cpu")
    spoil(pool)
    runner = lab.paged.model_runner.ModelRunner(model, pool, attention)
    batch = lab.paged.batch.PagedBatch(runner, allocator_of(lab, 40), 3, chunk_size)
    lengths = ((5, 9), (19, 4), (1, 7), (18, 5))
    requests = [lab.request.Request(prompt_of(n, seed=n), max_tokens) for n, max_tokens in lengths]
    return lab.engine_core.generate_all(batch, requests)


def test_task_5_as_many_workers_as_numba_has_threads(lab, cpu_kernel, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(cpu_kernel, "get_num_threads", lambda: 7)
    monkeypatch.setattr(cpu_kernel, "attend_pages", lambda *arguments: asked.append(arguments[9]))
    step = RaggedStep.random(99, [(9, 1)], 16)
    cpu_kernel.paged_attention_cpu(*step.arguments(lab, "cpu"), step.meta(lab, "cpu"), step.scale)
    check_equal(asked, [7], name="`workers` where Numba has 7 threads")


def test_task_5_parts_are_merged_in_float32_and_rounded_once(lab, cpu_kernel, monkeypatch):
    """Two parts of equal weight, whose mean is rounded down, while that of the rounded parts is rounded up."""

    def leave(*arguments):
        out, lse = arguments[10:]
        out[:], lse[:] = np.array([1 + 2.5 * 2**-9, 1 + 9 * 2**-9]).reshape(2, 1, 1, 1), 0.0

    monkeypatch.setattr(cpu_kernel, "attend_pages", leave)
    step = RaggedStep.random(100, [(PART + 1, 1)], 16, dtype="bfloat16")
    out, _ = cpu_kernel.paged_attention_cpu(*step.arguments(lab, "cpu"), step.meta(lab, "cpu"), step.scale)
    wanted = np.full(step.query.shape, 1.0 + 2**-7)
    check(out, wanted, name="the merged parts", axes="T H D", dtype="bfloat16", rtol=0, atol=0)


def test_task_5_continuous_batching_gives_the_same_tokens(lab, cpu_kernel):
    reference = run_batch(lab, lab.paged.attention.paged_attention, 4)
    outputs = run_batch(lab, cpu_kernel.paged_attention_cpu, 4)
    check_equal(outputs, reference, name="the outputs of four requests, against Day 3.2's attention")


# Task 6: many queries


@causal_or_not
@dtypes
@pytest.mark.parametrize(
    ("L", "S"), [(1, 1), (1, 40), (2, 2), (2, 3), (5, 40), (39, 40), (40, 40), (33, 300)]
)
def test_task_6_the_last_tokens_of_a_sequence_attend(lab, auto, L, S, dtype, causal):
    shapes = ((L, 6, 8), (S, 2, 8), (S, 2, 8))
    query, key, value = (random_numbers(94 + n, *shape, dtype=dtype) for n, shape in enumerate(shapes))
    arrays = [on_cpu(lab, x, dtype) for x in (query, key, value)]
    oracle = partial(attend_alone, query, key, value, 0.4)
    wanted = oracle(bottom_right if causal else everything)
    rules = {"the causal rule was kept, and `causal` is False": bottom_right}
    if causal:
        rules = {
            "all queries see all keys: the causal rule was left out": everything,
            "torch's causal rule is aligned at the top left: query i sees keys 0 … i": lambda i, L, S: min(
                S, i + 1
            ),
        }
    wrong = {why: oracle(seen) for why, seen in rules.items()}
    if L < S:
        new = attend_alone(query, key[S - L :], value[S - L :], 0.4, bottom_right)
        past = attend_alone(query, key[: S - L], value[: S - L], 0.4, everything)
        wrong |= {
            "the past was left out: only the new tokens are attended to": new,
            "the new tokens were left out: only the past is attended to": past,
            "the two parts were added, not merged": (new[0] + past[0], new[1] + past[1]),
        }
    actual = pair_of(auto.attend_fused(*arrays, 0.4, causal), "attend_fused")
    options = TIGHT if dtype == "float32" else HALF
    for place, name, axes in ((0, "attention", "L H D"), (1, "the log-sum-exp", "L H")):
        check(
            actual[place],
            wanted[place],
            name=f"{name} of {L} queries over {S} keys, causal={causal}",
            axes=axes,
            dtype=dtype if place == 0 else "float32",
            suspects={why: other[place] for why, other in wrong.items()},
            **options,
        )


@causal_or_not
@pytest.mark.parametrize(("L", "S"), [(200, 200), (100, 300)])
def test_task_6_no_array_of_scores_is_made(lab, auto, L, S, causal):
    arrays = [on_cpu(lab, random_numbers(97, n, heads, 8)) for n, heads in ((L, 6), (S, 2), (S, 2))]
    _, largest = lab.largest_array(auto.attend_fused, *arrays, 0.4, causal)
    assert largest < L * S, (
        f"an array of {largest} numbers was made, for {L} queries and {S} keys: the scores"
    )


SIDES = [(FEW, FEW), (FEW + 4, FEW + 1), (40, 1), (90, 70), (50, FEW), (FEW + 1, FEW + 1), (70, 2)]


def causal_for_some(step: RaggedStep) -> Mistakes:
    """Where `causal` is False: it reached one of the two ways, and not the other."""
    kept = "`causal` is False, and the causal rule was kept for the sequences with"

    def seen_where(few: bool) -> Seen:
        return lambda i, L, S: bottom_right(i, L, S) if (L <= FEW) == few else S

    return {
        f"{kept} up to {FEW} new tokens: the kernel's": lambda: step.expected(False, seen=seen_where(True)),
        f"{kept} more new tokens: `attend_fused`'s": lambda: step.expected(False, seen=seen_where(False)),
    }


@causal_or_not
@dtypes
@sizes_of_pages
def test_task_6_one_step_has_sequences_with_few_and_with_many_queries(lab, auto, P, dtype, causal):
    step = RaggedStep.random(98, SIDES, P, dtype=dtype)
    options = TIGHT if dtype == "float32" else HALF
    mistakes = {} if causal else causal_for_some(step)
    check_step(
        lab, auto.paged_attention_auto, step, causal=causal, device="cpu", mistakes=mistakes, **options
    )


@pytest.mark.parametrize("lengths", [[(30, 30)], [(30, 1)], [(30, 20), (5, 1)], [(5, 1), (30, 20)]], ids=str)
def test_task_6_one_kind_alone_or_either_order(lab, auto, lengths):
    check_paged(lab, auto.paged_attention_auto, RaggedStep.random(99, lengths, 3))


@causal_or_not
@QUICK
@given(
    seed=st.integers(0, 999),
    P=st.sampled_from([1, 3, 16]),
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=4),
)
def test_task_6_any_random_step(seed, P, lengths, causal):
    lab = door.active()
    step = RaggedStep.random(seed, [(past + new, new) for past, new in lengths], P)
    check_paged(lab, lab.kernels.paged_attention_auto.paged_attention_auto, step, causal)


@pytest.mark.parametrize("P", [3, 16])
def test_task_6_two_sets_of_pages_merged_give_the_whole(lab, auto, P):
    step = RaggedStep.random(100, SIDES, P)
    for pages in (1, 2):
        check_merged(lab, auto.paged_attention_auto, step, pages, device="cpu", **TIGHT)


def test_task_6_it_is_the_reference_on_both_sides(lab, auto):
    step = RaggedStep.random(101, SIDES, 3)
    arguments = [*step.arguments(lab, "cpu"), step.meta(lab, "cpu"), step.scale]
    reference = [lab.numpy(x).astype(np.float64) for x in lab.paged.attention.paged_attention(*arguments)]
    actual = pair_of(auto.paged_attention_auto(*arguments), "paged_attention_auto")
    for place, name in ((0, "attention"), (1, "the log-sum-exp")):
        check(actual[place], reference[place], name=f"{name}, against Day 3.2's", **TIGHT)


@causal_or_not
def test_task_6_few_queries_go_to_the_kernel_and_many_are_gathered(lab, auto, monkeypatch, causal):
    """Both ways are right for any number of queries; which is faster depends on it."""
    kernel, fused = auto.paged_attention_cpu, auto.attend_fused
    asked, gathered = [], []

    def kernel_with_notes(query, keys, values, meta, scale, causal=True, rows=None):
        asked.append(None if rows is None else sorted(rows))
        return kernel(query, keys, values, meta, scale, causal, rows)

    def fused_with_notes(query, key, value, scale, causal):
        gathered.append((len(query), len(key), causal))
        return fused(query, key, value, scale, causal)

    monkeypatch.setattr(auto, "paged_attention_cpu", kernel_with_notes)
    monkeypatch.setattr(auto, "attend_fused", fused_with_notes)
    check_paged(lab, auto.paged_attention_auto, RaggedStep.random(102, SIDES, 3), causal)
    few = [row for row, (_, q_len) in enumerate(SIDES) if q_len <= FEW]
    many = [(q_len, kv_len, causal) for kv_len, q_len in SIDES if q_len > FEW]
    check_equal(
        asked, [few], name=f"the sequences that the kernel is asked for, by q_len {[q for _, q in SIDES]}"
    )
    check_equal(sorted(gathered), sorted(many), name="what goes to attend_fused: queries, keys, causal")


@pytest.mark.parametrize("chunk_size", [4, 18])
def test_task_6_continuous_batching_gives_the_same_tokens(lab, auto, chunk_size):
    reference = run_batch(lab, lab.paged.attention.paged_attention, chunk_size)
    outputs = run_batch(lab, auto.paged_attention_auto, chunk_size)
    check_equal(outputs, reference, name="the outputs of four requests, against Day 3.2's attention")
