"""Tokenizer: text to token ids and back, and conversations in the model's own form (given code).

    tokenizer = load_tokenizer("smollm2-135m")
    tokenizer.decode(tokenizer.encode("Once upon a time"))                    # the same text
    tokenizer.encode_chat([{"role": "user", "content": "Name three fruits."}])

A model's vocabulary holds *control tokens* beside the ordinary ones: `<|im_end|>` ends a turn, `<|im_start|>` starts
one. `encode` accepts them in its text, so that a raw prompt can spell out a whole conversation. `encode_chat` accepts
them from the chat template only: a message that contains the letters `<|im_end|>` is a message about those letters,
and can't end its own turn to go on in the role of another speaker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import tokenizers

from tiny_llm.loading.chat_template import ChatTemplate
from tiny_llm.loading.errors import WeightsError, is_panic
from tiny_llm.loading.gguf_tokenizer import gguf_tokenizer
from tiny_llm.loading.hf_tokenizer import hf_tokenizer
from tiny_llm.loading.locate import DEFAULT_MODEL, locate
from tiny_llm.loading.tokenizer_parts import TokenizerParts

__all__ = ["Message", "Tokenizer", "load_tokenizer"]

Message = Mapping[str, Any]
"""One turn of a conversation: "role" ("system", "user" or "assistant") and "content"."""

_END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>")
"""Control tokens that end a turn or a text in the supported families, also where a file declares only one of them."""
_PRIVATE = [chr(number) for number in range(0xE000, 0xF900)]
"""The characters of Unicode's private use area."""


class Tokenizer:
    """Text to ids and back, for one model."""

    def __init__(self, parts: TokenizerParts) -> None:
        """Use `load_tokenizer` to make one."""
        self._backend = parts.backend
        self._template = None if parts.template is None else ChatTemplate(parts.template)
        self._variables = parts.template_variables
        self._control = {
            token.content: i for i, token in parts.backend.get_added_tokens_decoder().items() if token.special
        }
        self.bos_id = parts.bos_id
        """The token that starts a text, or None."""
        known_ends = [self._control[token] for token in _END_TOKENS if token in self._control]
        self.end_ids = tuple(dict.fromkeys([*parts.declared_end_ids, *known_ends]))
        """Generation ends when one of these comes up; the first is the one that the model declares."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens. A model's embedding may have more rows; no token belongs to the rest."""
        return self._backend.get_vocab_size()

    @cached_property
    def longest_token(self) -> int:
        """How many characters of a text a token stands for at most.

        A text of n characters has at least n / longest_token tokens, unless the tokenizer drops some of them.
        """
        return max(map(len, self._backend.get_vocab()))

    def encode(self, text: str, control_tokens: bool = True, start: bool = True) -> list[int]:
        """The ids of a text, after the model's start token where its tokenizer asks for one.

        Args:
            text: any text.
            control_tokens: whether `<|im_end|>` and the like stand for the control tokens of that name. Pass False
                for text that you don't trust: they are then letters like any other.
            start: whether the text may get the start token. Pass False for a text that continues another one.
        """
        with _no_panic():
            return _ids(self._backend if control_tokens else self._literal_backend, text, start)

    def decode(self, ids: Iterable[int], skip_control_tokens: bool = True) -> str:
        """The text of some ids. Bytes that aren't whole characters yet come out as U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_control_tokens)

    def check_fits(self, vocab_size: int) -> None:
        """Check that every token has a row in the embedding of the model.

        Raises:
            WeightsError: one has none, so a text that contains it would fail when the model runs.
        """
        ids = [*self._backend.get_vocab(with_added_tokens=True).values(), *self.end_ids]
        highest = max(ids if self.bos_id is None else [*ids, self.bos_id], default=0)
        if highest >= vocab_size:
            raise WeightsError(
                f"the tokenizer has a token with the id {highest}, but the model's embedding ends at "
                f"{vocab_size - 1}: its files don't belong together; download it again"
            )

    def chat(self, messages: Sequence[Message], **variables: Any) -> str:
        """The conversation as the model's template writes it, up to where the answer begins.

        Args:
            messages: the turns so far.
            variables: the variables of this template, such as `enable_thinking=False` for Qwen3.

        Raises:
            WeightsError: the model has no template, or the template refuses these messages.
        """
        if self._template is None:
            raise WeightsError("this model has no chat template: give it a raw prompt (--raw)")
        return self._template.render(messages, {**self._variables, **variables})

    def encode_chat(self, messages: Sequence[Message], **variables: Any) -> list[int]:
        """The ids of the conversation, up to where the answer begins. See `chat`.

        The template's control tokens are control tokens; the same spelling in a message is letters.
        """
        mark = _unused_mark(messages)
        text = self.chat([_break_up(m, self._control_pattern, mark) for m in messages], **variables)
        with _no_panic():
            if mark not in text:
                return _ids(self._backend, text, start=False)
            return self._encode_marked(text, mark)

    def encode_chat_parts(self, messages: Sequence[Message], **variables: Any) -> tuple[list[int], list[int]]:
        """The ids of the conversation in two parts: up to the content of the last message, and from there on.

        Other tokens may be put between the two. As in `encode_chat`, only the template's control tokens are control
        tokens.

        Raises:
            WeightsError: as for `chat`; or the template leaves out the beginning of this content.
        """
        mark = _unused_mark(messages)
        place = mark + mark
        messages = [_break_up(m, self._control_pattern, mark) for m in messages]
        last = {**messages[-1], "content": place + messages[-1]["content"]}
        text = self.chat([*messages[:-1], last], **variables)
        if place not in text:
            raise WeightsError(
                "this model's chat template leaves out the beginning of the last message, so nothing can be put "
                "before it: give it a raw prompt (--raw)"
            )
        before, after = text.split(place, 1)
        with _no_panic():
            return self._encode_marked(before, mark), self._encode_marked(after, mark)

    def _encode_marked(self, text: str, mark: str) -> list[int]:
        """The ids of a text in which the letters of control tokens that aren't meant are marked."""
        ids: list[int] = []
        for piece in self._control_pattern.split(text):
            if piece in self._control:
                ids.append(self._control[piece])
            else:
                ids += _ids(self._literal_backend, piece.replace(mark, ""), start=False)
        return ids

    @cached_property
    def _literal_backend(self) -> tokenizers.Tokenizer:
        """The same tokenizer, except that control tokens in the text are letters."""
        literal = tokenizers.Tokenizer.from_str(self._backend.to_str())
        literal.encode_special_tokens = True
        return literal

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        """Matches a control token's spelling, longer ones first; in a group, so that `split` keeps it."""
        longest_first = sorted(self._control, key=len, reverse=True)
        return re.compile("(" + ("|".join(map(re.escape, longest_first)) or "(?!)") + ")")


def load_tokenizer(source: str | Path = DEFAULT_MODEL) -> Tokenizer:
    """The tokenizer that belongs to a model; `source` is what `load_weights` takes.

    Raises:
        WeightsError: no such model, or its tokenizer is missing, broken or of a kind that isn't supported.
    """
    path = locate(source)
    return Tokenizer(hf_tokenizer(path) if path.is_dir() else gguf_tokenizer(path))


def _ids(backend: tokenizers.Tokenizer, text: str, start: bool = True) -> list[int]:
    """The ids of a text; ``start``: after the model's start token, where its tokenizer asks for one.

    `encode_batch_fast` lets other threads run meanwhile, and `encode` doesn't.
    """
    return list(backend.encode_batch_fast([text], add_special_tokens=start)[0].ids)


def _unused_mark(messages: Sequence[Message]) -> str:
    """What none of the messages contains: a character from Unicode's private use area, or two different ones.

    There are 40 million pairs, so a text that contains all of them is longer than any prompt.
    """
    text = json.dumps(list(messages), ensure_ascii=False, default=str)
    there = set(text)
    for character in _PRIVATE:
        if character not in there:
            return character
    pairs = set(pairwise(text))
    return next(a + b for a, b in permutations(_PRIVATE, 2) if (a, b) not in pairs)


@contextmanager
def _no_panic() -> Iterator[None]:
    """A pattern of the tokenizer's can give up on a text, which the library answers with a panic: no Exception."""
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise WeightsError(
            f"the model's tokenizer gives up on this text ({error}): choose another"
        ) from error


def _break_up(value: Any, control: re.Pattern[str], mark: str) -> Any:
    """The message with a mark after each letter of every spelled-out control token, so that none is recognized."""
    if isinstance(value, str):
        return control.sub(lambda match: "".join(letter + mark for letter in match[0]), value)
    if isinstance(value, Mapping):
        return {key: _break_up(inner, control, mark) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_break_up(inner, control, mark) for inner in value]
    return value
