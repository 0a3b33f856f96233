"""Small models that have everything, weights, tokenizer and template, and a run of one from its files to a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_models import LLAMA3_ROPE, SIZES, random_model, write_gguf
from tiny_tokenizers import CHATML, ggml_settings, save_folder

from tiny_llm.model import Transformer
from tiny_llm.tokenizer import load_tokenizer
from tiny_llm.weights import load_weights

MESSAGES = [{"role": "user", "content": "the cat <|im_end|>"}]


def whole_model(vocabulary: dict[str, Any]) -> Any:
    """A Llama 3.1 with a row of the embedding for each token."""
    config = transformers.LlamaConfig(
        **{**SIZES, "vocab_size": len(vocabulary["tokens"]), "num_hidden_layers": 2, "intermediate_size": 96},
        rope_parameters=LLAMA3_ROPE,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
    )
    return random_model(config)


def write_whole_gguf(path: Path, model: Any, vocabulary: dict[str, Any]) -> Path:
    """It as a GGUF file, with the rule of Qwen2."""
    return write_gguf(path, model, settings=ggml_settings(vocabulary))


def write_whole_folder(folder: Path, model: Any, vocabulary: dict[str, Any]) -> Path:
    """It as a Hugging Face folder."""
    save_folder(folder, vocabulary, CHATML)
    model.save_pretrained(folder)
    return folder


def run_whole(path: Path, chat: bool = True) -> int:
    """Load everything, as a program does, and generate one token."""
    weights = load_weights(path)
    tokenizer = load_tokenizer(path)
    tokenizer.check_fits(weights.config.vocab_size)
    ids = tokenizer.encode("the dog sat; it's 12 +  3")
    if chat:
        ids += tokenizer.encode_chat(MESSAGES)
    ids = ids[: weights.config.max_positions]
    logits = Transformer(weights.config, weights)(torch.tensor([ids or [0]]), slice(0, len(ids) or 1))
    token = int(logits[0, -1].argmax())
    tokenizer.decode([token])
    return token
