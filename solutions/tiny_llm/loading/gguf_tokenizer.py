"""A tokenizer from a GGUF file's metadata.

GGUF stores the vocabulary and the merges, but only the *name* of the rule that cuts a text into words before merging.
The rules of the supported families are below, as the models' own tokenizer files define them.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from tiny_llm.loading.errors import WeightsError, reading
from tiny_llm.loading.fields import Fields, shown
from tiny_llm.loading.gguf_config import declared_end_ids
from tiny_llm.loading.gguf_file import read_gguf
from tiny_llm.loading.tokenizer_parts import TokenizerParts

_CONTROL, _USER_DEFINED = 3, 4  # kinds of token that are matched in the text before it is cut into words
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

# Contractions, words with at most one leading sign, digits, signs, line ends, other space. Qwen2 cuts a number into
# single digits, Llama 3 into groups of up to three.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_QWEN2 = ("qwen2", "deepseek-r1-qwen")
_SMOLLM = ("smollm",)
_GPT2 = ("gpt-2",)


def gguf_tokenizer(path: Path) -> TokenizerParts:
    """The tokenizer that the file describes.

    Raises:
        WeightsError: the file can't be read, has no tokenizer, or one that is broken or of a kind that isn't
            supported.
    """
    with reading(path):
        file = read_gguf(path)
        fields = Fields(path, file.metadata)
        if fields.get("tokenizer.ggml.model") != "gpt2":
            raise WeightsError(
                f"{path} has a tokenizer of kind {shown(fields.get('tokenizer.ggml.model'))}; only byte-level BPE "
                "('gpt2') is read from GGUF: use the model's Hugging Face folder instead"
            )
        backend = _byte_level_bpe(fields)
        ids = {name: fields.token_id(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
        named = {name: backend.id_to_token(i) or "" for name, i in ids.items() if i is not None}
        starts = fields.flag("tokenizer.ggml.add_bos_token", fields.get("tokenizer.ggml.pre") in _LLAMA3)
        if starts and "bos_token" in named:
            backend.post_processor = _with_start(named["bos_token"], ids["bos_token"])
        return TokenizerParts(
            backend=backend,
            bos_id=ids["bos_token"],
            declared_end_ids=declared_end_ids(file),
            template=fields.text("tokenizer.chat_template"),
            template_variables=named,
        )


def _with_start(bos: str, bos_id: int | None) -> processors.TemplateProcessing:
    """What puts the start token before a text."""
    return processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, bos_id)]
    )


def _byte_level_bpe(fields: Fields) -> tokenizers.Tokenizer:
    """A byte-level BPE with the file's vocabulary, merges and added tokens."""
    tokens, kinds = fields.texts("tokenizer.ggml.tokens"), fields.items("tokenizer.ggml.token_type")
    halves = [merge.partition(" ") for merge in fields.texts("tokenizer.ggml.merges")]
    merges = [(first, second) for first, _, second in halves]
    rule = fields.text("tokenizer.ggml.pre")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=rule in _LLAMA3))
    backend.pre_tokenizer = _pre_tokenizer(fields.path, rule)
    if rule in _QWEN2:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    added = list(zip(tokens, kinds, strict=True))
    backend.add_special_tokens([AddedToken(t, normalized=False) for t, kind in added if kind == _CONTROL])
    backend.add_tokens([AddedToken(t, normalized=False) for t, kind in added if kind == _USER_DEFINED])
    return backend


def _pre_tokenizer(path: Path, rule: str | None) -> pre_tokenizers.PreTokenizer:
    """How a text is cut into words, inside which pairs are merged."""
    if rule in _GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule in _SMOLLM:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if rule in _QWEN2 or rule in _LLAMA3:
        words = Regex(_WORDS % (r"\p{N}" if rule in _QWEN2 else r"\p{N}{1,3}"))
        split = pre_tokenizers.Split(words, behavior="isolated")
        return pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    raise WeightsError(
        f"{path} cuts its text into words by the rule {rule!r}, which isn't supported: "
        "use the model's Hugging Face folder instead"
    )
