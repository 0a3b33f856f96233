"""The example with Ray Serve: which replica a prompt goes to, and, where Ray is installed, the answers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from coursekit.paths import Course

ROOT = Course.find().root
sys.path.append(str(ROOT))

from examples.ray_serve.prefixes import Prefixes  # noqa: E402  # the folder isn't installed

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray isn't installed: pdm install -L pdm.ray.lock -G ray"
)


def test_prompts_with_the_same_beginning_go_to_the_same_replica() -> None:
    prefixes = Prefixes(length=4)
    homes = {prefixes.home(f"abcd{number}", ["one", "two"]) for number in range(10)}
    assert len(homes) == 1


def test_each_replica_gets_as_many_prefixes() -> None:
    prefixes = Prefixes(length=4)
    names = ["one", "two", "three"]
    first = [prefixes.home(f"{number:04}", names) for number in range(12)]
    assert set(Counter(first).values()) == {4}
    assert [prefixes.home(f"{number:04} and more", names) for number in range(12)] == first


def test_the_prefixes_of_a_replica_that_is_gone_move_and_the_others_stay() -> None:
    prefixes = Prefixes(length=1)
    before = {letter: prefixes.home(letter, ["one", "two"]) for letter in "abcdef"}
    after = {letter: prefixes.home(letter, ["two", "three"]) for letter in "abcdef"}
    assert all(after[letter] == "two" for letter, home in before.items() if home == "two")
    assert set(after.values()) == {"two", "three"}


def test_the_prefix_that_was_not_asked_for_longest_is_forgotten_first() -> None:
    prefixes = Prefixes(length=1, most=2)
    assert [prefixes.home(letter, ["one", "two"]) for letter in "ab"] == ["one", "two"]
    prefixes.home("a", ["one", "two"])
    prefixes.home("c", ["one", "two"])  # b is forgotten
    assert prefixes.home("a", ["one", "two", "three"]) == "one"
    assert prefixes.home("b", ["three"]) == "three"


PATIENCE = {"RAY_agent_register_timeout_ms": "120000", "RAY_raylet_start_wait_time_s": "120"}
"""A busy machine takes longer to start Ray than Ray waits by itself."""

PROGRAM = """
import asyncio, json
import ray
from ray import serve
from examples.ray_serve.app import engines, with_door

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.run(with_door(engines(replicas=2)), name="test", route_prefix=None)
handle = serve.get_deployment_handle("Engine", "test")
words = " ".join(f"word{number}" for number in range(60))
prompts = [f"{letter} {words} Once upon a time" for letter in "AB" for _ in range(3)]
answers = [handle.complete.remote(prompt, max_tokens=6).result() for prompt in prompts]
print(json.dumps(answers))
serve.shutdown()
ray.shutdown()
"""


@needs_ray
@pytest.mark.timeout(300)
def test_two_replicas_give_the_tokens_of_one_engine_and_find_what_they_have_cached() -> None:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.params import SamplingParams

    path = os.pathsep.join([str(ROOT / "solutions"), str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "RAY_agent_register_timeout_ms": "120000",
            "RAY_raylet_start_wait_time_s": "120",
        },
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert [count > 0 for count in cached] == [False, True, True] * 2, "each prefix is computed once"
    words = " ".join(f"word{number}" for number in range(60))
    with LLM() as llm:
        alone = [
            llm.generate(f"{letter} {words} Once upon a time", SamplingParams(max_tokens=6))[0].text
            for letter in "AB"
        ]
    assert [answer["choices"][0]["text"] for answer in answers] == [alone[0]] * 3 + [alone[1]] * 3
