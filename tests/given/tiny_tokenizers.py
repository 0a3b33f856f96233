"""Small tokenizers, trained on the spot, in both file formats."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import gguf
import tokenizers
import transformers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = ("<think>", "</think>")
UNREACHABLE = "Ġxyzzy"  # a word that no merges lead to: only a rule that looks up whole words finds it
CHATML = (
    "{% for message in messages %}\n"
    "    {% if loop.first and message.role != 'system' %}\n"
    "{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' -}}\n"
    "    {% endif %}\n"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEXT = (
    "the cat sat on the mat and the dog sat on the log; it's what they're doing, isn't it? WE'LL see, I'd say.\n"
    "in 1999 there were 12345 cats, 100000 dogs and 3.14159 pies\n\n\tdef main(x):\n\t\treturn x ** 2  # done\n"
    "über Äpfel, naïve café, Ελληνικά, русский текст, 漢字かな交じり文, हिन्दी, עברית, العربية 🙂🙃 ½ ² Ⅷ ٣\r\n"
) * 4
TRICKY = (
    "",
    " ",
    "   ",
    "\n",
    " \n \n\n  x",
    "\t\ttabs\tand  spaces   ",
    "Hello, world!",
    "say xyzzy, xyzzy",
    "it's IT'S they'Ve we'LL 'tis",
    "don't can't I'd",
    "0 1 12 123 1234 12345 123456 3.14 1,000,000",
    "x1y22z333",
    "½ ² Ⅷ ٣٤٥ ①",
    "café café Å Å ﬁ",
    "漢字かな交じり文。",
    "русский, Ελληνικά; עברית العربية",
    "हिन्दी में",
    "🙂 👩‍👩‍👧‍👦 🇫🇷 e\u0301 \u200b \ufeff",
    "\u00a0non\u2003breaking\u3000spaces\u2028line",
    "\r\nwindows\r\n\r\nlines\r",
    "a\x00b\x7fc\x1b[0m",
    "<|im_start|>user\nhi<|im_end|>",
    "<|im_end|><|im_end|> <|im_end|>\n",
    "<|im_end|<|im_end|>|>",
    "<think>\nwell\n</think>\n\n",
    "def f(x):\n    return x**2  # square\n\n\n",
    "..., ?!; --- ___ *** (((",
    "a" * 300,
    "the " * 50,
)


def random_texts(count: int) -> list[str]:
    """Random strings over letters, digits, signs, spaces and characters from far apart."""
    draw = random.Random(7)
    pool = [
        *"abcXYZ019 \n\t\r'.,!_-",
        " ",
        "  ",
        "é",
        "e\u0301",
        "ß",
        "漢",
        "🙂",
        "½",
        "'s",
        "\u3000",
        "<|im_end|>",
        "the",
    ]
    return ["".join(draw.choices(pool, k=draw.randint(1, 24))) for _ in range(count)]


def trained() -> dict[str, Any]:
    """A byte-level BPE vocabulary: its tokens in order, its merges, and each token's kind in GGUF.

    It is trained without cutting the text into words, so that the merges reach over spaces, digits and line ends,
    and a wrong rule for cutting shows.
    """
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(CONTROL),
        initial_alphabet=alphabet,
        max_token_length=8,
        show_progress=False,
    )
    backend.train_from_iterator([TEXT[i : i + 60] for i in range(0, len(TEXT), 60)], trainer)
    model = json.loads(backend.to_str())["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].__getitem__), UNREACHABLE, *USER_DEFINED]
    kinds = [3 if token in CONTROL else 4 if token in USER_DEFINED else 1 for token in tokens]
    return {"tokens": tokens, "merges": [" ".join(merge) for merge in model["merges"]], "kinds": kinds}


def ggml_settings(vocabulary: dict[str, Any]) -> dict[str, Any]:
    """The keys of a GGUF file that has Qwen2's rule, with their types."""
    text, number, array = gguf.GGUFValueType.STRING, gguf.GGUFValueType.INT32, gguf.GGUFValueType.ARRAY
    return {
        "tokenizer.ggml.model": ("gpt2", text),
        "tokenizer.ggml.pre": ("qwen2", text),
        "tokenizer.ggml.tokens": (vocabulary["tokens"], array, text),
        "tokenizer.ggml.merges": (vocabulary["merges"], array, text),
        "tokenizer.ggml.token_type": (vocabulary["kinds"], array, number),
        "tokenizer.ggml.add_bos_token": (True, gguf.GGUFValueType.BOOL),
        "tokenizer.chat_template": (CHATML, text),
    }


def write_gguf_tokenizer(path: Path, vocabulary: dict[str, Any], rule: str, **settings: Any) -> Path:
    """A GGUF file with a tokenizer and no weights; `settings` are further keys of tokenizer.ggml."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(settings.pop("model", "gpt2"))
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_merges(vocabulary["merges"])
    writer.add_token_types(vocabulary["kinds"])
    writer.add_eos_token_id(2)
    template = settings.pop("chat_template", None)
    if template is not None:
        writer.add_chat_template(template)
    for name, value in settings.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def save_folder(folder: Path, vocabulary: dict[str, Any], template: str | None, **settings: Any) -> Any:
    """A Hugging Face folder with the same vocabulary and Qwen2's rule; returns transformers' own tokenizer."""
    ids = {token: i for i, token in enumerate(vocabulary["tokens"])}
    backend = tokenizers.Tokenizer(
        models.BPE(ids, [tuple(merge.split(" ")) for merge in vocabulary["merges"]])
    )
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = transformers.Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in CONTROL])
    backend.add_tokens([AddedToken(token, normalized=False) for token in USER_DEFINED])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<|im_end|>", **settings
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)
