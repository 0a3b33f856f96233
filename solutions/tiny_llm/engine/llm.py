"""The engine for programs: prompts in, texts out, for any number of callers (Day 4.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tiny_llm.documents.attention import NO_REMEDY, Remedy
from tiny_llm.documents.positions import STRATEGIES
from tiny_llm.documents.prompt import Segments
from tiny_llm.engine.completion import Completion, Deliver
from tiny_llm.engine.generation import Generation
from tiny_llm.engine.limits import Limits
from tiny_llm.engine.make_batch import make_batch
from tiny_llm.engine.output import Delta, RequestOutput
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.prompts import Encoded, Prompt, PromptReader, as_list
from tiny_llm.engine.request import RequestMaker
from tiny_llm.engine_core import EngineCore
from tiny_llm.fast.forms import check_fast, load_form
from tiny_llm.fast.threads import release_threads
from tiny_llm.loading.locate import DEFAULT_MODEL
from tiny_llm.model import Transformer
from tiny_llm.ragged.batcher import Batcher
from tiny_llm.tokenizer import Message, Tokenizer, load_tokenizer
from tiny_llm.weights import load_weights

GREEDY = SamplingParams()
Params = SamplingParams | Sequence[SamplingParams]
"""The same settings for all prompts, or settings for each."""


class LLM:
    """A model that answers: one loop over one scheduler, on a thread of its own, for all callers.

    Every method may be called from any thread, and several at a time. Use it in a `with` statement, or call
    :meth:`close` at the end.

        with LLM() as llm:
            print(llm.chat([{"role": "user", "content": "Name three fruits."}]).text)
    """

    def __init__(
        self,
        model: str | Path | Transformer = DEFAULT_MODEL,
        tokenizer: Tokenizer | None = None,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        limits: Limits = Limits(),  # noqa: B008  # it can't change
        max_queue: int = 256,
        attention: str = "auto",
        enable_chunk_aware: bool = False,
        chunk_separator: str | None = " # # ",
        chunk_position_strategy: str = "shared",
        max_chunk_len: int | None = None,
        remedy: Remedy = NO_REMEDY,
        fast: bool | str = False,
        around: Callable[[EngineCore], EngineCore] = lambda core: core,
    ) -> None:
        """Load the model, if it isn't loaded yet, and start the loop (given code).

        Args:
            model: what :func:`load_weights` takes, or a model that is loaded.
            tokenizer: the model's; it must be given with a model that is loaded.
            dtype: the number format of weights and arithmetic, for a model that is to be loaded; device likewise.
            limits: the sizes of the engine.
            max_queue: how many requests may wait in the engine for a seat, and how many more in the queue.
            attention: the name of a way to attend.
            enable_chunk_aware: whether prompts may have documents, each of which is cached for itself.
            chunk_separator: what stands between system prompt, documents and question in a prompt that is one string;
                None: strings are never split.
            chunk_position_strategy: where documents stand, see :func:`segment_starts`.
            max_chunk_len: how many tokens a document may have.
            remedy: how to weigh documents.
            fast: whether to run a model that is to be loaded as Day 4.7 does: in "8-bit", "bfloat16" or "float32", or
                with True in the form that is chosen for this machine, by measurement at the first start. Then dtype
                and attention don't count. On a CUDA device there are "bfloat16", which is what True means, and
                "float32".
            around: puts something around the engine core that the loop drives, such as a watch on its steps.

        Raises:
            ValueError: an argument is out of range, or the tokenizer is missing.
            WeightsError: the model can't be had.
        """
        if chunk_position_strategy not in STRATEGIES:
            raise ValueError(
                f"chunk_position_strategy is {chunk_position_strategy!r}; it must be one of: {', '.join(STRATEGIES)}"
            )
        if chunk_position_strategy == "offset" and max_chunk_len is None:
            raise ValueError("with chunk_position_strategy 'offset', max_chunk_len must be given")
        check_fast(fast)
        if isinstance(model, Transformer) and tokenizer is None:
            raise ValueError("a model that is loaded needs its tokenizer beside it")
        if not isinstance(model, Transformer):
            source = model
            if fast is not False:
                model, attention = load_form(source, fast, device)
            else:
                weights = load_weights(source, dtype=dtype, device=device)
                model = Transformer(weights.config, weights)
            tokenizer = tokenizer or load_tokenizer(source)
        assert tokenizer is not None
        tokenizer.check_fits(model.config.vocab_size)
        self.model = model
        self.tokenizer = tokenizer
        self.limits = limits
        self.reader = PromptReader(tokenizer, enable_chunk_aware, chunk_separator, max_chunk_len)
        self.core = make_batch(model, limits, attention, remedy, max_queue)
        self.make_request = RequestMaker(
            self.core.max_positions, limits, chunk_position_strategy, max_chunk_len
        )
        self.batcher = Batcher(around(self.core), max_queue)
        release_threads()
        self.batcher.start()

    def __enter__(self) -> Self:
        """Give the engine itself (given code)."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the engine (given code)."""
        self.close()

    def close(self, drain: bool = False, timeout: float | None = None) -> bool:
        """Take no more prompts, and end the loop; arguments and result as for :meth:`Batcher.stop` (given code)."""
        return self.batcher.stop(drain, timeout)

    def begin(
        self, prompt: Encoded, params: SamplingParams, deliver: Deliver = lambda delta: None
    ) -> Generation:
        """Submit ``params.n`` requests with the same prompt, each with a :class:`Completion` of its own.

        They are ordinary requests, which come one right behind the other: what the first computes of the prompt, the
        others find in the page cache, in the same step already. A request's tokens go to its completion's ``push``;
        when its future is settled or cancelled, the completion's ``settle`` is called with it.

        Args:
            prompt: the token ids; those of ``Segments`` are in its ``token_ids``.
            params: the settings.
            deliver: called with each delta, mostly on the batcher's thread.

        Returns:
            the completions and their futures, in the order of their numbers, 0 to n − 1.

        Raises:
            ValueError: the batcher says that the prompt can't ever run here; :meth:`refusal` is not asked.
            QueueFull: the queue has no room for all of them, also where it never could have.
            Closed: the engine was closed. After an error none of the requests goes on.
        """
        prompt_ids = prompt.token_ids if isinstance(prompt, Segments) else prompt
        generation = Generation(len(prompt_ids))
        try:
            for index in range(params.n):
                completion = self.completion(prompt, params, index, deliver)
                future = self.batcher.submit(self.make_request(prompt, completion), completion.push)
                generation.completions.append(completion)
                generation.futures.append(future)
                future.add_done_callback(completion.settle)
        except BaseException:
            generation.cancel()
            raise
        return generation

    def run_all(self, prompts: Sequence[Encoded], params: Sequence[SamplingParams]) -> list[RequestOutput]:
        """Bring some prompts to their ends, and wait for them.

        No more requests of this call are on their way at a time than the queue has room for: a prompt without room
        waits until the oldest one is complete. A prompt that can't ever run is found before any has begun.

        Args:
            prompts: token ids.
            params: the settings of each.

        Returns:
            the answers, in the order of the prompts.

        Raises:
            ValueError: a prompt can't ever run here. The message is the reason; where there are several prompts,
                "prompt 2: " and the reason, counted from 1. Or there are not as many settings as prompts.
            Whatever :meth:`begin` raises, or an answer has failed of. After any error, and Ctrl-C, all is cancelled.
        """
        for number, (prompt, each) in enumerate(zip(prompts, params, strict=True), start=1):
            reason = self.refusal(prompt, each)
            if reason is not None:
                raise ValueError(reason if len(prompts) == 1 else f"prompt {number}: {reason}")
        generations: list[Generation] = []
        under_way: deque[Generation] = deque()
        try:
            for prompt, each in zip(prompts, params, strict=True):
                while (
                    under_way and sum(len(one.futures) for one in under_way) + each.n > self.batcher.max_queue
                ):
                    under_way.popleft().wait()
                generations.append(self.begin(prompt, each))
                under_way.append(generations[-1])
            return [generation.wait() for generation in generations]
        finally:
            for generation in generations:
                generation.cancel()

    def refusal(self, prompt: Encoded, params: SamplingParams) -> str | None:
        """Why a prompt can't ever run here, or None (given code)."""
        if params.n > self.batcher.max_queue:
            return f"n is {params.n}; at most {self.batcher.max_queue} requests may wait here"
        return self.core.refusal(self.make_request(prompt, self.completion(prompt, params)))

    def completion(
        self, prompt: Encoded, params: SamplingParams, index: int = 0, deliver: Deliver = lambda delta: None
    ) -> Completion:
        """An answer to a prompt that has not begun yet (given code)."""
        prompt_len = len(prompt.question) if isinstance(prompt, Segments) else len(prompt)
        return Completion(params, self.tokenizer, prompt_len, index, deliver)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: Params = GREEDY, control_tokens: bool = False
    ) -> list[RequestOutput]:
        """Continue some prompts, all of them together, and wait for all answers (given code).

        Args:
            prompts: one prompt, or a list of them. A list of ints is one prompt.
            params: the settings.
            control_tokens: as for :meth:`PromptReader.read`.

        Returns:
            the answers, in the order of the prompts.

        Raises:
            ValueError: as :meth:`PromptReader.read` and :meth:`run_all` say, which raise other errors, too.
        """
        many = as_list(prompts)
        wanted = [params] * len(many) if isinstance(params, SamplingParams) else list(params)
        if len(wanted) != len(many):
            raise ValueError(f"there are {len(many)} prompts, and settings for {len(wanted)}")
        pairs = zip(many, wanted, strict=True)
        return self.run_all(
            [self.reader.read(one, each.documents, control_tokens) for one, each in pairs], wanted
        )

    def chat(self, messages: Sequence[Message], params: SamplingParams = GREEDY) -> RequestOutput:
        """Answer a conversation; errors as for :meth:`PromptReader.read_chat` and :meth:`run_all` (given code)."""
        return self.run_all([self.reader.read_chat(messages, params.documents)], [params])[0]

    def stream(self, prompt: Prompt, params: SamplingParams = GREEDY) -> Iterator[Delta]:
        """Continue a prompt, and give each delta as soon as it is known (given code).

        It begins when the first delta is asked for. Leaving the loop early cancels the rest.
        """
        yield from self.deltas(self.reader.read(prompt, params.documents), params)

    def stream_chat(self, messages: Sequence[Message], params: SamplingParams = GREEDY) -> Iterator[Delta]:
        """Answer a conversation in the same way (given code)."""
        yield from self.deltas(self.reader.read_chat(messages, params.documents), params)

    def deltas(self, prompt: Encoded, params: SamplingParams) -> Iterator[Delta]:
        """The deltas of all answers to a prompt; errors as for :meth:`begin` and :meth:`Generation.deltas`."""
        queue: SimpleQueue[Delta] = SimpleQueue()
        return self.begin(prompt, params, queue.put).deltas(queue)
