"""The mask of the chapter's nine tokens, with their positions under both strategies: computed by the reference."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, save

from tiny_llm.documents.mask import document_mask
from tiny_llm.documents.positions import segment_ids, segment_positions
from tiny_llm.documents.prompt import DocumentPrompt, Segments, encode_prompt
from tiny_llm.tokenizer import Tokenizer, load_tokenizer

PROMPT = DocumentPrompt("Be brief", ("The cat sat", "A dog"), "Who sat")
MAX_CHUNK_LEN = 4
COLOR = {-1: "blue", 0: "orange", 1: "green", -2: "purple"}
NAME = {-1: "system", 0: "document 1", 1: "document 2", -2: "question"}

CELL, LEFT, TOP = 0.385, 1.95, 3.95
WORD, SHARED, OFFSET = 0.68, 1.08, 1.62  # where a row's labels end or have their middle
ABOVE = (0.72, 0.45, 0.17)  # how far above the grid the columns' words and positions stand


@dataclass(frozen=True)
class Token:
    """A token of the prompt, or the first one that is generated."""

    word: str
    segment: int
    shared: int
    offset: int
    new: bool = False


def draw() -> None:
    tokenizer = load_tokenizer()
    segments = encode_prompt(PROMPT, tokenizer)
    tokens = _tokens(segments, tokenizer)
    seen = (document_mask(segments) == 0).tolist()
    fig, ax = diagram(height=4.95)
    _heads(ax, tokens)
    for row, token in enumerate(tokens):
        for column, key in enumerate(tokens):
            if not key.new or token.new:
                _cell(ax, row, column, key, sees=token.new or seen[row][column])
    _legend(ax)
    save(fig, "week_4_day_4")


def _tokens(segments: Segments, tokenizer: Tokenizer) -> list[Token]:
    words = [tokenizer.decode([each]).strip() for each in segments.token_ids]
    shared = segment_positions(segments)
    offset = segment_positions(segments, "offset", MAX_CHUNK_LEN)
    tokens = [Token(*each) for each in zip(words, segment_ids(segments), shared, offset, strict=True)]
    return [*tokens, Token("new", -2, shared[-1] + 1, offset[-1] + 1, new=True)]


def _heads(ax: Axes, tokens: list[Token]) -> None:
    """Words and positions of the queries on the left, of the keys above."""
    for x, words in ((WORD, "query"), (SHARED, "shared"), (OFFSET, "offset")):
        label(ax, x, TOP + 0.12, words, size=8, color="muted", align="right" if x == WORD else "center")
    for y, words in zip(ABOVE, ("key", "shared", "offset"), strict=True):
        label(ax, LEFT + 10 * CELL + 0.15, TOP + y, words, size=8, color="muted", align="left")
    for i, token in enumerate(tokens):
        y, x, color = TOP - (i + 0.5) * CELL, LEFT + (i + 0.5) * CELL, COLOR[token.segment]
        word = f"({token.word})" if token.new else token.word
        label(ax, WORD, y, word, color=color, align="right", bold=not token.new)
        label(ax, SHARED, y, str(token.shared), mono=True)
        label(ax, OFFSET, y, str(token.offset), mono=True, color="muted")
        label(ax, x, TOP + ABOVE[0], word, color=color, size=8.5, bold=not token.new)
        label(ax, x, TOP + ABOVE[1], str(token.shared), mono=True)
        label(ax, x, TOP + ABOVE[2], str(token.offset), mono=True, color="muted")


def _cell(ax: Axes, row: int, column: int, key: Token, sees: bool) -> None:
    x, y = LEFT + column * CELL, TOP - (row + 1) * CELL
    isolated = not sees and column < row
    face = PALE[COLOR[key.segment]] if sees else COLORS["paper"] if isolated else PALE["muted"]
    ax.add_patch(
        Rectangle(
            (x, y),
            CELL,
            CELL,
            facecolor=face,
            edgecolor=COLORS["red"] if isolated else COLORS["line"],
            linewidth=1.1 if isolated else 0.7,
            hatch="////" if isolated else None,
            zorder=1.2 if isolated else 1,
        )
    )
    if not isolated:
        label(ax, x + CELL / 2, y + CELL / 2, "0" if sees else "−∞", size=8, color="ink" if sees else "line")
    if row == column:
        inner = Rectangle(
            (x + 0.03, y + 0.03), CELL - 0.06, CELL - 0.06, fill=False, edgecolor=COLORS["ink"], linewidth=1.1
        )
        ax.add_patch(inner)


def _legend(ax: Axes) -> None:
    """What the colors mean, to the right of the grid."""
    x, y = LEFT + 10 * CELL + 0.15, TOP - 0.2
    for segment, name in NAME.items():
        color = COLOR[segment]
        ax.add_patch(Rectangle((x, y - 0.08), 0.16, 0.16, facecolor=PALE[color], edgecolor=COLORS[color]))
        label(ax, x + 0.24, y, name, size=8, align="left")
        y -= 0.27
    for edge, face, hatch, words in (
        ("line", PALE["muted"], None, "later: hidden"),
        ("red", COLORS["paper"], "////", "other document:\nhidden, too"),
    ):
        y -= 0.12
        ax.add_patch(
            Rectangle((x, y - 0.08), 0.16, 0.16, facecolor=face, edgecolor=COLORS[edge], hatch=hatch)
        )
        label(ax, x + 0.24, y, words, size=8, align="left")
        y -= 0.27


if __name__ == "__main__":
    draw()
