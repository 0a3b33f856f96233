"""Day 4.6's penalties and log-probabilities in float64 NumPy, and the samplers of a step beside those of Day 1.7."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from shared.arguments import float_dtypes

from coursekit.check import CheckFailed, check_equal

from .beside_samplers import new_alone, new_samplers, states_of, whole_step


def penalize(logits: np.ndarray, output: Sequence[int], presence: float, frequency: float) -> np.ndarray:
    """Lower the scores one token of the output after another."""
    scores = logits.astype(np.float64)
    for place, token in enumerate(output):
        scores[token] -= frequency + (presence if token not in output[:place] else 0)
    return scores


def penalty_suspects(
    logits: np.ndarray, output: Sequence[int], presence: float, frequency: float
) -> dict[str, np.ndarray]:
    """What the usual mistakes give."""
    once, counts = np.zeros(len(logits)), np.bincount(output, minlength=len(logits))
    once[list(set(output))] = 1
    gives = {
        "presence is subtracted for each occurrence; once is enough": (presence + frequency) * counts,
        "frequency is subtracted once; it counts for each occurrence": (presence + frequency) * once,
        "presence and frequency are taken for each other": frequency * once + presence * counts,
        "presence is left out": frequency * counts,
        "frequency is left out": presence * once,
        "the scores are raised where they should be lowered": -presence * once - frequency * counts,
        "presence is subtracted from the tokens that are not in the output": presence * (1 - once)
        + frequency * counts,
        "presence is subtracted from all tokens": presence + frequency * counts,
        "frequency counts the occurrences after the first alone": presence * once
        + frequency * (counts - once),
        "frequency is divided by the length of the output": presence * once
        + frequency * counts / len(output),
        "the penalties of a negative score have the opposite effect; they are subtracted from any score": np.sign(
            logits
        )
        * (presence * once + frequency * counts),
        "a penalty below 0 is taken as its size; it raises the score": abs(presence) * once
        + abs(frequency) * counts,
        "a penalty below 0 is taken for 0; it raises the score": max(presence, 0) * once
        + max(frequency, 0) * counts,
    }
    right = presence * once + frequency * counts
    alike = [sum(np.array_equal(one, other) for other in gives.values()) for one in gives.values()]
    return {
        cause: logits - lowered
        for (cause, lowered), count in zip(gives.items(), alike, strict=True)
        if count == 1 and not np.array_equal(lowered, right)
    }


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def best_first(logits: np.ndarray) -> list[int]:
    """The ids by falling score; of equal scores the lower id first."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


DAY_7 = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


class Twin:
    """A request's row, and the sampler of Day 1.7 that gives its tokens on scores that NumPy has penalized."""

    def __init__(
        self, lab: Any, prompt: Sequence[int] = (), output: Sequence[int] = (), **params: Any
    ) -> None:
        self.lab, self.params, self.prompt_len = lab, {"seed": 1, **params}, len(prompt)
        self.ids = [*prompt, *output]
        self.sampler, self.alone = new_samplers(lab, self.params, self.prompt_len, self._day_7())

    def new_alone(self, **params: Any) -> Any:
        """Day 1.7's sampler with the same seed."""
        return new_alone(self.lab, self._day_7() | params)

    def _day_7(self) -> dict[str, Any]:
        return {name: value for name, value in self.params.items() if name in DAY_7}

    @property
    def row(self) -> Any:
        return self.lab.engine.step_sampler.Row(self.sampler, self.ids)

    @property
    def output(self) -> list[int]:
        return self.ids[self.prompt_len :]

    @property
    def penalties(self) -> tuple[float, float]:
        return self.params.get("presence_penalty", 0.0), self.params.get("frequency_penalty", 0.0)

    def wanted(self, logits: np.ndarray) -> int:
        """The next token, for one row of scores [V] in float64; takes a random number where the settings draw."""
        return int(self.alone(wide(self.lab, self.penalized(logits)), self.ids))

    def penalized(self, logits: np.ndarray) -> np.ndarray:
        """One row of scores [V] in float64 with the penalties for presence and frequency."""
        return penalize(logits, self.output, *self.penalties)

    def told(self) -> str:
        """The settings, without the seed."""
        rest = {name: value for name, value in self.params.items() if name != "seed"}
        return f"{rest or 'the defaults'}, prompt {self.ids[: self.prompt_len]}, output {self.output}"


def wide(lab: Any, scores: np.ndarray) -> Any:
    """An array in float64, or the best that there is on the lab's device."""
    return lab.array(scores, wide_dtype(lab))


def wide_dtype(lab: Any) -> str:
    return "float64" if "float64" in float_dtypes(lab) else "float32"


def check_generators(
    twins: Sequence[Twin], when: str, states: Sequence[tuple[str, str]] | None = None
) -> None:
    """Each sampler has taken as many random numbers as Day 1.7's: one where it drew, none where it was greedy.

    Args:
        twins: the rows.
        when: for the message.
        states: what `states_of` gives, where it is known already.
    """
    __tracebackhide__ = True
    if states is None:
        states = states_of([(twin.sampler, twin.alone) for twin in twins])
    for number, (twin, (one, other)) in enumerate(zip(twins, states, strict=True)):
        if one == other:
            continue
        mine, state = twin.sampler.random.getstate(), twin.alone.random
        again, taken = twin.new_alone().random, 0
        while again.getstate() != mine and taken < 50:
            again.random()
            taken += 1
        again, wanted = twin.new_alone().random, 0
        while again.getstate() != state.getstate():
            again.random()
            wanted += 1
        found = f"{taken} were taken" if taken < 50 else "others were taken"
        raise CheckFailed(
            f"{when}: row {number} takes one random number per token that it draws, and none where it is greedy: "
            f"{wanted} in all; {found} ({twin.told()})"
        )


def check_step(
    lab: Any, twins: Sequence[Twin], logits: np.ndarray, what: str, dtype: str = "float32"
) -> list[int]:
    """One step of all rows: the tokens that each chooses alone. They are appended."""
    __tracebackhide__ = True
    array = lab.array(logits, dtype)
    held = lab.numpy(array).astype(np.float64)
    alone = [(twin.alone, twin.penalized(held[row])) for row, twin in enumerate(twins)]
    step = whole_step(lab, array, [(twin.sampler, twin.ids) for twin in twins], alone, wide_dtype(lab))
    expected, found = step["alone"], step["found"]
    check_generators(twins, f"after {what}", step["states"])
    wrong = [n for n, (one, other) in enumerate(zip(found or (), expected, strict=False)) if one != other]
    told = f" (row {wrong[0]}: {twins[wrong[0]].told()})" if wrong else ""
    check_equal(found, expected, name=f"the tokens of {what}{told}")
    for token in found:
        assert type(token) is int, f"the tokens of {what} are plain ints; {token!r} found"
    for twin, token in zip(twins, found, strict=True):
        twin.ids.append(token)
    return expected


@contextmanager
def changed(module: Any, **values: Any) -> Iterator[None]:
    """Numbers of a module that are others for a while."""
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def penalize_seen(logits: np.ndarray, ids: Sequence[int], penalty: float) -> np.ndarray:
    """Day 1.7's penalty."""
    scores = logits.astype(np.float64)
    for token in set(ids):
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    return scores
