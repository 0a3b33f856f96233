"""The program that tries a tokenizer.json out before it is believed: `apart.py` runs it in a process of its own.

The file can hold patterns that take forever on some texts, steps that make a text a million times longer, or
anything that breaks the library off in a panic. A few texts of the kinds that bring this out are encoded and decoded.
"""

from __future__ import annotations

from typing import Any

import tokenizers

from tiny_llm.loading.apart import answer_questions

_RUN = 2000  # characters: enough for a pattern that tries every way to cut a run
_RUNS = "aZ0 .\n\t_é漢🙂"
_WORDS = "It's 12:30, and the quick brown Fuchs – naïve! – has eaten 1,234 x_1 = f(y);\r\n\r\n  漢字 🙂 "
_MOST_TOKENS = 16  # for one character, with a few to spare for those that frame a text


def answer(question: dict[str, str]) -> dict[str, Any]:
    """What is wrong with the tokenizer at "path": a "problem", or nothing."""
    try:
        backend = tokenizers.Tokenizer.from_file(question["path"])
        for text in ("", _WORDS * 20, *(f"{letter * _RUN}!\x00" for letter in _RUNS)):
            ids = backend.encode(text).ids
            if len(ids) > _MOST_TOKENS * (len(text) + _MOST_TOKENS):
                return {"problem": f"it makes {len(ids):,} tokens of {len(text):,} characters"}
            backend.decode(ids)
        return {}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library isn't an Exception
        return {"problem": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    answer_questions(answer)
