"""Text generation for one request (Days 1.6 and 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from tiny_llm.arrays import Tensor, integers
from tiny_llm.kv_cache import FullKvCache, LayerCache
from tiny_llm.model import Transformer
from tiny_llm.tokenizer import Tokenizer

Sample = Callable[[Tensor, Sequence[int]], int]
"""Chooses the next token from its logits [V] and all the token ids so far, prompt included."""


def greedy(logits: Tensor, token_ids: Sequence[int] = ()) -> int:
    """The id of the highest score; of equal scores, the lowest id.

    Args:
        logits: [V], any float dtype; compared as they are, and left as they are.
        token_ids: the ids so far, which the greedy choice ignores. A sampler, called in the same way, needs them.
    """
    return int(logits.argmax())


def generate_recompute(
    model: Transformer,
    prompt_ids: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int] = (),
    sample: Sample = greedy,
) -> Iterator[int]:
    """Generate token after token, running the model over the whole sequence each time.

    Stops after ``max_tokens`` tokens, after an end token, or when prompt and output together fill the model's
    ``max_positions``.

    Args:
        model: logits for the next token come from the last row of what ``model.hidden`` returns.
        prompt_ids: at least one token id, and fewer than the model has positions.
        max_tokens: how many tokens to produce at most; 0 produces none.
        end_ids: ids that end the text. The one produced is yielded too.
        sample: chooses a token from the last row of logits [V] and all the ids so far.

    Yields:
        Each new token id as soon as it is known.

    Raises:
        ValueError: the prompt is empty or too long, also where ``max_tokens`` is 0. Raised when the first token is
            asked for.
    """
    ids = list(prompt_ids)
    limit = model.config.max_positions
    if not 0 < len(ids) < limit:
        raise ValueError(f"a prompt needs 1 to {limit - 1} tokens; this one has {len(ids)}")
    weight = model.embedding.weight
    for _ in range(min(max_tokens, limit - len(ids))):
        hidden = model.hidden(integers([ids], like=weight), slice(0, len(ids)))
        token = sample(model.logits(hidden[0, -1]), ids)
        ids.append(token)
        yield token
        if token in end_ids:
            return


def generate(
    model: Transformer,
    prompt_ids: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int] = (),
    sample: Sample = greedy,
    make_cache: Callable[[], LayerCache] = FullKvCache,
) -> Iterator[int]:
    """Generate token after token, running the model only over what its caches don't hold yet.

    That is the whole prompt at first (prefill), then one token at a time (decode). Everything else is as in
    :func:`generate_recompute`: the same tokens, stops and errors.

    Args:
        model: as in :func:`generate_recompute`.
        prompt_ids: at least one token id, and fewer than the model has positions.
        max_tokens: how many tokens to produce at most; 0 produces none and runs nothing.
        end_ids: ids that end the text. The one produced is yielded too.
        sample: chooses a token from the last row of logits [V] and all the ids so far.
        make_cache: makes an empty cache; called once for each layer.

    Yields:
        Each new token id as soon as it is known.

    Raises:
        ValueError: the prompt is empty or too long. Raised when the first token is asked for.
    """
    ids = list(prompt_ids)
    limit = model.config.max_positions
    if not 0 < len(ids) < limit:
        raise ValueError(f"a prompt needs 1 to {limit - 1} tokens; this one has {len(ids)}")
    weight = model.embedding.weight
    caches = [make_cache() for _ in range(model.config.num_layers)]
    known = 0  # tokens that the caches hold
    for _ in range(min(max_tokens, limit - len(ids))):
        new = integers([ids[known:]], like=weight)
        hidden = model.hidden(new, slice(known, len(ids)), caches)
        known = len(ids)
        token = sample(model.logits(hidden[0, -1]), ids)
        ids.append(token)
        yield token
        if token in end_ids:
            return


class StreamDecoder:
    """Turns token ids into text as they arrive.

    The bytes of one character can be spread over several tokens (an emoji, a Chinese character). Until the last of
    them has arrived, the tokenizer decodes the first ones to the replacement character U+FFFD, which must not be
    shown.

    Joined together, the texts that :meth:`push` and :meth:`flush` return equal ``tokenizer.decode`` of all the ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start with nothing shown and nothing held back."""
        self.tokenizer = tokenizer
        self.shown: list[int] = []  # the ids of the piece of text returned last
        self.held: list[int] = []  # the ids whose text is not returned yet

    def push(self, token_id: int) -> str:
        """Take in one id and return the text that is complete with it; "" while a character is unfinished."""
        self.held.append(token_id)
        text = self._new_text()
        if not text or text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self.shown, self.held = self.held, []
        return text

    def flush(self) -> str:
        """End the text: return the text still held back, with its replacement characters, and forget all ids."""
        text = self._new_text()
        self.shown, self.held = [], []
        return text

    def _new_text(self) -> str:
        """The text that the held ids add, "" when no id is held.

        They are decoded together with the ids of the piece before them: some tokenizers drop the space in front of
        the first id that they decode. Older ids are not decoded again, so an id costs no more in a long text.
        """
        before = self.tokenizer.decode(self.shown)
        return self.tokenizer.decode(self.shown + self.held)[len(before) :]
