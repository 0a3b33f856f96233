"""What a caller may give as a prompt, and what becomes of it (Day 4.6, given code)."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_llm.documents.prompt import DocumentPrompt, Segments, encode_documents, split_prompt
from tiny_llm.tokenizer import Message, Tokenizer

Prompt = str | Sequence[int] | DocumentPrompt
"""A text, token ids, or the segments of a document prompt."""

Prompts = Prompt | Sequence[Prompt]
"""One prompt, or several."""

Encoded = list[int] | Segments
"""The token ids of a prompt, or those of its segments."""


def as_list(prompts: Prompts) -> list[Prompt]:
    """Several prompts as they are, and one prompt as a list of one. A list of ints is one prompt.

    Raises:
        ValueError: ints stand beside prompts.
    """
    if isinstance(prompts, (str, DocumentPrompt)):
        return [prompts]
    token_ids = [each for each in prompts if isinstance(each, int)]
    if token_ids and len(token_ids) < len(prompts):
        raise ValueError(
            "a number stands among the prompts: the token ids of a prompt are a list of their own"
        )
    return [token_ids] if token_ids else [each for each in prompts if not isinstance(each, int)]


class DocumentsError(ValueError):
    """The documents of a request can't be taken: they are to blame, and not its prompt."""


class PromptReader:
    """Turns prompts into token ids, in the way that an engine was set up for."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        enable_chunk_aware: bool = False,
        chunk_separator: str | None = " # # ",
        max_chunk_len: int | None = None,
    ) -> None:
        """Arguments as for :class:`LLM`.

        Raises:
            ValueError: the separator is empty, or ``max_chunk_len`` is below 1.
        """
        if chunk_separator == "":
            raise ValueError("chunk_separator is empty: it must have at least one character, or be None")
        if max_chunk_len is not None and max_chunk_len < 1:
            raise ValueError(f"max_chunk_len is {max_chunk_len}; a document must be allowed at least 1 token")
        self.tokenizer = tokenizer
        self.enable_chunk_aware = enable_chunk_aware
        self.chunk_separator = chunk_separator
        self.max_chunk_len = max_chunk_len

    def read(self, prompt: Prompt, documents: Sequence[str] = (), control_tokens: bool = False) -> Encoded:
        """The token ids of a prompt that is continued as it stands.

        Args:
            prompt: a text; one with the separator in it is split there, if the engine is chunk-aware.
            documents: texts between the system prompt and the prompt.
            control_tokens: whether the spelling of a control token in the prompt is that token. In a document it
                never is.

        Raises:
            DocumentsError: documents without ``enable_chunk_aware``, beside token ids, or given in two ways; or as
                :func:`encode_documents` says.
        """
        if isinstance(prompt, str) and self._splits(prompt):
            prompt = split_prompt(prompt, self.chunk_separator or "")
        if isinstance(prompt, DocumentPrompt):
            if documents:
                raise DocumentsError("documents are given twice: in the prompt, and beside it")
            return self._segments(prompt, control_tokens)
        if isinstance(prompt, str):
            if not documents:
                return self.tokenizer.encode(prompt, control_tokens)
            return self._segments(DocumentPrompt("", tuple(documents), prompt), control_tokens)
        if documents:
            raise DocumentsError("documents go with a prompt that is text: they can't stand beside token ids")
        return list(prompt)

    def read_chat(self, messages: Sequence[Message], documents: Sequence[str] = ()) -> Encoded:
        """The token ids of a conversation, up to where the answer begins; documents stand before its last message.

        No spelling of a control token is one.

        Raises:
            DocumentsError: as for :meth:`read`.
            WeightsError: the model has no chat template, or it refuses these messages.
        """
        if not documents:
            return self.tokenizer.encode_chat(messages)
        self._require_chunk_aware()
        before, after = self.tokenizer.encode_chat_parts(messages)
        return Segments(tuple(before), self._documents(documents), tuple(after))

    def _splits(self, text: str) -> bool:
        return self.enable_chunk_aware and self.chunk_separator is not None and self.chunk_separator in text

    def _segments(self, prompt: DocumentPrompt, control_tokens: bool) -> Segments:
        self._require_chunk_aware()
        system = self.tokenizer.encode(prompt.system, control_tokens)
        question = self.tokenizer.encode(prompt.question, control_tokens, start=False)
        return Segments(tuple(system), self._documents(prompt.documents), tuple(question))

    def _documents(self, documents: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        try:
            return encode_documents(documents, self.tokenizer, self.max_chunk_len)
        except ValueError as error:
            raise DocumentsError(str(error)) from None

    def _require_chunk_aware(self) -> None:
        if not self.enable_chunk_aware:
            raise DocumentsError("this engine takes no documents: make it with enable_chunk_aware=True")
