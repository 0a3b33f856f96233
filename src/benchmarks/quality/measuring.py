"""What a form of the model predicts of a text: how likely its tokens are, and which token comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.quality.forms import Form, Load, Predict
from benchmarks.quality.pieces import Piece
from coursekit.running.stubs import reached_stub


@dataclass
class Predictions:
    """Of all tokens but the first of some pieces, one after the other, given what comes before each."""

    nll: list[float] = field(default_factory=list)  # natural logarithm
    greedy: list[int] = field(default_factory=list)  # the most likely token
    lead: list[float] = field(default_factory=list)  # its logit, less that of the next one

    def add(self, predict: Predict, piece: Piece) -> None:
        """Let the model predict a piece."""
        at = 1
        for rows in predict(piece.token_ids):
            for logits, token in zip(rows, piece.token_ids[at:], strict=False):  # nothing is behind the last
                best = logits.topk(2)
                self.nll.append(float(logits.logsumexp(dim=0) - logits[token]))
                self.greedy.append(int(best.indices[0]))
                self.lead.append(float(best.values[0] - best.values[1]))
            at += len(rows)


@dataclass
class Findings:
    """What was measured so far, and what had to be left out."""

    base: Predictions = field(default_factory=Predictions)
    forms: list[tuple[Form, Predictions]] = field(default_factory=list)  # those that have predicted all
    missing: dict[str, str] = field(default_factory=dict)  # a form's label -> which stub it reached


def measure(
    base: Form, forms: Sequence[Form], pieces: Sequence[Piece], load: Load, findings: Findings
) -> Iterator[str]:
    """Let each form predict all pieces; a form whose code is not written is left out.

    Each model is loaded when its turn comes, and let go of afterwards.

    Yields:
        what comes next: one line per form and piece.

    Raises:
        NotImplementedError: the code of the form that the others are compared with is not written.
    """
    yield from _predict(base, pieces, load, findings.base)
    for form in forms:
        predictions = Predictions()
        try:
            yield from _predict(form, pieces, load, predictions)
        except NotImplementedError as error:
            stub = reached_stub(error)
            if stub is None:
                raise
            findings.missing[form.label] = stub.message
        else:
            findings.forms.append((form, predictions))


def _predict(form: Form, pieces: Sequence[Piece], load: Load, predictions: Predictions) -> Iterator[str]:
    predict: Predict | None = None
    for piece in pieces:
        yield f"{form.label}: {piece.name}"
        predict = predict or form.make(load)
        predictions.add(predict, piece)
