"""A tokenizer whose ids can be told from the text by eye, and whose tokens reach over the edges of a separator."""

from __future__ import annotations

START, END = 1, 2
CONTROL = "<|end|>"
DROPPED = "\N{ZERO WIDTH SPACE}"
MERGED = (" # # ", "cat #", " # T", " #", "# ", "##", "cat", "the ")


class ToyTokenizer:
    """Takes the longest piece that it knows, from left to right; any other character is a token of its own."""

    def __init__(self, has_start: bool = True) -> None:
        self.has_start = has_start

    def encode(self, text: str, control_tokens: bool = True, start: bool = True) -> list[int]:
        """The ids of a text, as `Tokenizer.encode` gives them."""
        ids = [START] if start and self.has_start else []
        return ids + pieces(text, control_tokens)


def pieces(text: str, control_tokens: bool = False) -> list[int]:
    """The ids of a text, without the start token; a control token's spelling is letters unless it is asked for."""
    known = [CONTROL, *MERGED] if control_tokens else list(MERGED)
    ids = []
    while text:
        piece = max((each for each in known if text.startswith(each)), key=len, default=text[0])
        text = text[len(piece) :]
        if piece == CONTROL:
            ids.append(END)
        elif piece in MERGED:
            ids.append(10 + MERGED.index(piece))
        elif piece != DROPPED:
            ids.append(100 + ord(piece))
    return ids
