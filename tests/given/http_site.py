"""A server over HTTP around a small model of bytes: real code, random weights, and steps that can be held up."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import models as token_models
from week_3.patience import limit

from tiny_llm.config import ModelConfig
from tiny_llm.engine.limits import Limits
from tiny_llm.engine.llm import LLM
from tiny_llm.loading.tokenizer_parts import TokenizerParts
from tiny_llm.model import Transformer
from tiny_llm.server.app import make_app
from tiny_llm.server.run import HttpServer
from tiny_llm.server.settings import Settings
from tiny_llm.tokenizer import Tokenizer
from tiny_llm.weights import Weights

NAME = "toy"
POSITIONS, PAGES, PAGE_SIZE = 200, 120, 4
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 258
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HELLO: Any = [{"role": "user", "content": "hello"}]


@cache
def toy_tokenizer() -> Tokenizer:
    """A token for each byte, and three control tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(token_models.BPE({each: i for i, each in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(each, special=True) for each in CONTROL])
    return Tokenizer(TokenizerParts(backend, None, (END,), CHATML, {}))


@cache
def toy_weights() -> Weights:
    """One layer, in float64: no two scores are so close that a batch could change their order."""
    config = ModelConfig(
        "llama", 1, 16, 4, 2, 8, 24, 259, 1e-5, 1e4, POSITIONS, True, False, False, None, (END,)
    )
    random = np.random.default_rng(46)
    shapes = {
        "embedding.weight": (259, 16),
        "blocks.0.attention_norm.weight": (16,),
        "blocks.0.qkv.weight": (64, 16),
        "blocks.0.attention_out.weight": (16, 32),
        "blocks.0.mlp_norm.weight": (16,),
        "blocks.0.gate_up.weight": (48, 16),
        "blocks.0.down.weight": (16, 24),
        "norm.weight": (16,),
    }
    return Weights(
        config, {name: torch.from_numpy(random.normal(size=shape)) for name, shape in shapes.items()}
    )


class ToyModel(Transformer):
    """Its runs can be held up, and fail."""

    def __init__(self) -> None:
        super().__init__(toy_weights().config, toy_weights())
        self.open = threading.Event()
        self.open.set()
        self.allowed = threading.Semaphore(0)  # runs while it is not open
        self.failure: Exception | None = None  # of the next run
        self.begun = 0  # runs, also the one that is held up

    def hidden(self, *arguments: Any, **named: Any) -> torch.Tensor:
        self.begun += 1
        while not self.open.is_set() and not self.allowed.acquire(timeout=0.005):
            pass
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return super().hidden(*arguments, **named)


def toy_llm(model: ToyModel, max_queue: int = 100, seats: int = 8, **options: Any) -> LLM:
    """An engine around the model that takes documents."""
    return LLM(
        model,
        toy_tokenizer(),
        limits=Limits(seats, PAGES, PAGE_SIZE, 64),
        max_queue=max_queue,
        attention="reference",
        **{"enable_chunk_aware": True, "chunk_separator": None, **options},
    )


class Site:
    """A server on this machine while the block runs. At its end no page may be lost."""

    def __init__(self, settings: Settings = Settings(NAME), **options: Any) -> None:  # noqa: B008
        self.model = ToyModel()
        self.llm = toy_llm(self.model, **options)
        self.app = make_app(self.llm, settings)
        self.stop_asked = asyncio.Event()
        self.grace = 0.0
        self.address: Future[str] = Future()
        self.finished: Future[bool] = Future()
        self.http = httpx.Client(timeout=limit())
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = HttpServer(self.app, self.llm)
        self.address.set_result(await self.server.start())
        await self.stop_asked.wait()
        self.finished.set_result(await self.server.stop(self.grace))

    @property
    def url(self) -> str:
        return f"http://{self.address.result(limit())}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=limit(), **options)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """The answer to a POST; the body is bytes, or becomes JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        return self.http.post(f"{self.url}{path}", content=content, headers=given)

    def complete(self, **body: Any) -> Any:
        """The answer to a completion that works."""
        answer = self.post("/v1/completions", {"model": NAME, "temperature": 0, "prompt": "a", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self, **body: Any) -> Any:
        """The answer to a conversation that works."""
        answer = self.post(
            "/v1/chat/completions", {"model": NAME, "temperature": 0, "messages": HELLO, **body}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def hold(self) -> None:
        """From now on each run of the model waits."""
        self.model.open.clear()

    def let(self, runs: int) -> None:
        """Let so many runs go on."""
        self.model.allowed.release(runs)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something has come to pass."""
        deadline = time.monotonic() + limit()
        while not condition():
            assert time.monotonic() < deadline, f"{what}: this has not come; {self.llm.batcher.stats()}"
            time.sleep(0.002)

    def until_running(self, count: int = 1) -> None:
        self.until(lambda: self.llm.batcher.stats().running >= count, f"{count} requests run")

    def until_there(self, count: int) -> None:
        """Wait until so many requests wait or run."""
        stats = self.llm.batcher.stats
        self.until(lambda: stats().running + stats().waiting >= count, f"{count} requests are there")

    def until_at_rest(self) -> None:
        """Wait until no request is there; then all pages are free or cached, and the books balance."""
        stats = self.llm.batcher.stats
        self.until(lambda: not stats().running and not stats().waiting, "no request waits or runs")
        self.check_pages()

    def until_counted(self, outcome: str, count: int) -> None:
        """Wait until so many requests have ended in a way: a request leaves the engine before it is counted."""
        stats = self.llm.batcher.stats
        self.until(lambda: getattr(stats(), outcome) >= count, f"{count} requests are {outcome}")
        assert getattr(stats(), outcome) == count

    def check_pages(self) -> None:
        cache = self.llm.core.scheduler.cache
        cache.check([])
        assert cache.available == PAGES, f"{PAGES - cache.available} pages are lost"

    def stop(self, grace: float) -> Future[bool]:
        """Tell the server to stop, as a signal would."""
        self.grace = grace
        self.loop.call_soon_threadsafe(self.stop_asked.set)
        return self.finished

    def __enter__(self) -> Self:
        self.thread.start()
        self.address.result(limit())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.model.open.set()
        self.http.close()
        if not self.finished.done():
            self.stop(0).result(limit())
        self.thread.join(limit())
        if kind is None:
            assert not self.thread.is_alive(), "the server was told to stop, and goes on"
            self.check_pages()


def events_of(text: str) -> list[Any]:
    """The data of a stream of events; the last one is "[DONE]" where the answer is complete."""
    found = [each.removeprefix("data: ") for each in text.split("\n\n") if each]
    return [each if each == "[DONE]" else json.loads(each) for each in found]
