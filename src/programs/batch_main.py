"""`pdm run batch-main`: a fixed set of prompts of very different lengths, answered several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from coursekit.running.stubs import Stub, reached_stub
from programs import options
from programs.answers import Answer, BatchWatch, prepare
from programs.batch_report import make_table, print_answers
from programs.implementation import WHOSE
from programs.loaded import LoadedModel, make_sampler, running
from programs.prompts import PROMPTS, SHORT
from programs.seats import Seen
from programs.seats_view import SeatsView
from programs.source import Source, choose_source
from programs.stages import STAGES, Limits, Stage, find_stages
from programs.trie_view import Known, draw_trie

ANSWERING = tuple(stage for stage in reversed(STAGES) if stage.samples)
"""The stages that can answer with a sampler per request: the best first."""


def batch_main(
    context: typer.Context,
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    bits: options.BitsOption = None,
    matmul: options.MatmulOption = options.Matmul.AUTO,
    fast: options.FastOption = False,
    seats: Annotated[int, typer.Option(min=1, max=64, help="How many requests run together at most.")] = 5,
    chunk: Annotated[
        int,
        typer.Option(
            min=1,
            max=8192,
            help="How many tokens of a prompt are computed at a time at most; ragged, extend and preempt: tokens of "
            "all requests in a step.",
        ),
    ] = 128,
    stage: Annotated[
        str | None,
        typer.Option(
            help="How: extend, ragged, kernel, paged, continuous, cached or recompute; left out, the first of these "
            "that is written. Or preempt: with too few pages; served: by Day 4.6's engine."
        ),
    ] = None,
    attention: options.AttentionOption = options.Attention.AUTO,
    system: Annotated[
        str | None,
        typer.Option(
            help="The system message of all prompts, which extend and preempt compute once; left out, what the "
            "model's chat form has."
        ),
    ] = None,
    trie: Annotated[
        bool, typer.Option("--trie", help="At the end, print the tree of pages (extend and preempt).")
    ] = False,
    max_tokens: options.MaxTokensOption = 48,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    repetition_penalty: options.RepetitionPenaltyOption = 1.0,
    seed: options.SeedOption = None,
) -> None:
    """Answer a fixed set of prompts, several at a time, and say how fast it went."""
    params: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }
    source = choose_source(context, Source(model, dtype, device, bits, matmul, attention), fast)
    with running(impl) as course:
        make_sampler(**params)  # refuse bad values before the model is loaded
        stages = choose_stages(stage, trie, fast)
        loaded = source.load(course, impl)
        wanted = Wanted(max_tokens, params, system, trie)
        answer_all(loaded, stages, Limits(seats, chunk, source.attention), wanted, impl)


@dataclass(frozen=True)
class Wanted:
    """What is wanted of the answers."""

    max_tokens: int
    params: dict[str, Any]  # for the samplers
    system: str | None = None  # the system message of all prompts
    trie: bool = False  # whether the tree of pages is printed


def choose_stages(name: str | None, trie: bool, fast: bool = False) -> list[Stage]:
    """The stage of that name, or all that may be tried, the best first.

    Raises:
        CourseError: there is no such stage, or it has no tree to print, or it leaves no choice how to attend, as
            Day 4.7's engine needs.
    """
    # Too few pages make answers slow, and without documents the stage for them has nothing to add.
    found = [stage for stage in find_stages(name, ANSWERING) if name or not (stage.scarce or stage.documents)]
    if fast and not (found := [stage for stage in found if stage.attention == "auto"]):
        others = ", ".join(stage.name for stage in ANSWERING if stage.attention == "auto")
        raise CourseError(f"--fast is not for the stage {name}; leave it out, or choose one of: {others}")
    if not trie:
        return found
    sharing = [stage for stage in found if stage.shares]
    if not sharing:
        others = " and ".join(stage.name for stage in ANSWERING[::-1] if stage.shares)
        raise CourseError(f"in the stage {name}, requests share no pages; --trie is for {others}")
    return sharing


def answer_all(
    loaded: LoadedModel, stages: Sequence[Stage], limits: Limits, wanted: Wanted, impl: Impl
) -> None:
    """Answer the prompts with the first of the stages for which the code is there.

    Raises:
        NotImplementedError: a stub was reached in each of them.
    """
    missing: Stub | None = None
    for stage in stages:
        try:
            _answer(loaded, stage, limits, wanted, impl, missing)
            return
        except NotImplementedError as error:
            missing = reached_stub(error)
            if missing is None or stage is stages[-1]:
                raise


def _answer(
    loaded: LoadedModel, stage: Stage, limits: Limits, wanted: Wanted, impl: Impl, missing: Stub | None
) -> None:
    """Answer with one stage, then print what there is, also after Ctrl-C."""
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    stage.prepare(loaded, limits)
    prompts = SHORT if stage.short_prompts else PROMPTS
    answers = prepare(loaded, prompts, wanted.system, **wanted.params)
    watch = BatchWatch(loaded.model)
    whose, folder = WHOSE[impl]
    code = f"{whose}, {folder}"
    progress.print(f"{code}: {len(answers)} prompts, {stage.title}", style="dim", soft_wrap=True)
    try:
        with SeatsView(progress, answers, wanted.max_tokens) as view:
            run(loaded, watch, stage, answers, limits, wanted.max_tokens, view)
    except KeyboardInterrupt:
        _report(console, loaded, answers, watch, code, wanted.trie)
        raise
    _report(console, loaded, answers, watch, code, wanted.trie)
    if missing is not None:
        console.print(_advice(stage, missing), style="yellow", soft_wrap=True, markup=False)


def run(
    loaded: LoadedModel,
    watch: BatchWatch,
    stage: Stage,
    answers: Sequence[Answer],
    limits: Limits,
    max_tokens: int,
    view: SeatsView,
) -> None:
    """Bring the answers to their ends with the model that is watched, and show each step."""
    from tiny_llm.request import Request

    end_ids = loaded.tokenizer.end_ids
    answer_of = {
        Request(
            each.prompt_ids, max_tokens, end_ids, each.sample if stage.own_samplers else each.choose
        ): each
        for each in answers
    }
    watched: Any = watch

    def show(seen: Seen) -> None:
        for request, answer in answer_of.items():
            answer.note(request.output[len(answer.output) :])  # empty where `choose` has noted them
        for request, count in seen.computed.items():
            answer = answer_of[request]
            answer.computed = min(len(answer.prompt_ids), count)
        seats = [None if request is None else answer_of[request] for request in seen.seats]
        prefilling = None if seen.prefilling is None else answer_of[seen.prefilling]
        preempted = [answer_of[request] for request in seen.preempted]
        counts = {} if seen.sharing is None else seen.sharing.counts
        view.step(seats, prefilling, {answer_of[request] for request in seen.finished}, preempted, counts)
        watch.sharing = seen.sharing
        for request, answer in answer_of.items():
            answer.pages = () if seen.sharing is None else seen.sharing.held.get(request, ())

    try:
        stage.run(LoadedModel(watched, loaded.tokenizer), list(answer_of), limits, show)
    finally:
        for request, answer in answer_of.items():
            answer.refused = request.error
            answer.pages = ()  # also after Ctrl-C, all have left the engine


def _report(
    console: Console, loaded: LoadedModel, answers: Sequence[Answer], watch: BatchWatch, code: str, trie: bool
) -> None:
    from tiny_llm.prefix.trie_cache import TrieCache

    print_answers(console, loaded, answers)
    if trie and watch.sharing is not None and isinstance(watch.sharing.cache, TrieCache):
        known = [Known(each.number, [*each.prompt_ids, *each.output], each.pages) for each in answers]
        console.print(draw_trie(watch.sharing.cache, known, loaded.tokenizer.decode), "\n")
    if any(answer.output for answer in answers):
        console.print(make_table(answers, watch), f"run by {code}")


def _advice(stage: Stage, missing: Stub) -> str:
    """Which task brings the next stage."""
    some = f": {len(SHORT)} short prompts of {len(PROMPTS)}" if stage.short_prompts else ""
    return (
        f"This was {stage.title}{some}. The next stage needs "
        f"{missing.message}. Test it with: pdm run test {missing.week}.{missing.day}"
    )
