"""The application: replicas of the engine, a router that knows prefixes, and a door for HTTP.

Run it with `serve run examples.ray_serve.app:app`, then ask it:

    curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time"}'
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.requests import Request

from examples.ray_serve.prefixes import Prefixes


class PrefixRouter(RequestRouter):
    """Sends a prompt to the replica that has its prefix, or, while that one is full, to any other."""

    def initialize_state(self, **settings: Any) -> None:
        """Start without prefixes."""
        self.prefixes = Prefixes(**settings)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The replicas to try, in order; the first argument of a call is its prompt."""
        if pending_request is None or not candidate_replicas:
            return [candidate_replicas]
        names = {str(each.replica_id): each for each in candidate_replicas}
        home = names[self.prefixes.home(pending_request.args[0], names)]
        return [[home], [each for each in candidate_replicas if each is not home]]


class Engine:
    """A replica: an engine of its own, on one core."""

    def __init__(self, num_pages: int = 1024) -> None:
        """Load the model.

        Args:
            num_pages: how many pages its pool has.
        """
        import torch

        from tiny_llm.engine.async_llm import AsyncLLM
        from tiny_llm.engine.limits import Limits
        from tiny_llm.engine.llm import LLM

        torch.set_num_threads(1)
        self.llm = AsyncLLM(LLM(limits=Limits(num_pages=num_pages)))

    async def complete(self, prompt: str, **settings: Any) -> dict[str, Any]:
        """Continue a prompt.

        Args:
            prompt: the text.
            settings: fields of :class:`SamplingParams`.

        Returns:
            the answer in OpenAI's form.
        """
        from tiny_llm.engine.params import SamplingParams

        output = await self.llm.generate(prompt, SamplingParams(**settings))
        choices = [
            {"index": each.index, "text": each.text, "finish_reason": str(each.finish_reason)}
            for each in output.outputs
        ]
        usage = {
            "prompt_tokens": output.prompt_tokens,
            "completion_tokens": output.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": output.cached_tokens},
        }
        return {"object": "text_completion", "choices": choices, "usage": usage}


def engines(replicas: int, by_prefix: bool = True, num_pages: int = 1024) -> serve.Application:
    """Replicas of the engine.

    Args:
        replicas: how many.
        by_prefix: whether prompts go where their prefix is; otherwise Ray asks two replicas, drawn at random, and
            takes the one with the shorter queue.
        num_pages: of each.
    """
    router = RequestRouterConfig(request_router_class=PrefixRouter) if by_prefix else RequestRouterConfig()
    deployment = serve.deployment(
        Engine,
        num_replicas=replicas,
        max_ongoing_requests=32,  # as many as an engine has seats
        ray_actor_options={"num_cpus": 1},
        request_router_config=router,
    )
    return deployment.bind(num_pages)


class Door:
    """Takes requests over HTTP. It is here, where the prompt is read, that the replica can be chosen."""

    def __init__(self, handle: DeploymentHandle) -> None:
        """Ask these replicas."""
        self.handle = handle

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Answer `{"prompt": …}`, with fields of :class:`SamplingParams` beside it."""
        body = await request.json()
        answer: dict[str, Any] = await self.handle.complete.remote(body.pop("prompt"), **body)
        return answer


def with_door(behind: serve.Application) -> serve.Application:
    """The door in front of some replicas; it takes no core from them."""
    return serve.deployment(Door, ray_actor_options={"num_cpus": 0}).bind(behind)


app = with_door(engines(replicas=2))
