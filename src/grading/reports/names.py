"""Names: of a learner's file, made from an id, which may be any text; and the order of those of days and tasks."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256

LENGTH = 60
_HARMLESS = re.compile(r"[a-z0-9](?:[a-z0-9_.-]*[a-z0-9_-])?")
_MARKED = re.compile(r".*-[0-9a-f]{10}", re.DOTALL)  # else an id could be made that is another id's file name
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?"
)  # Windows opens a device, whatever follows


def file_name(identity: str) -> str:
    """A name without its ending, for any file system: the id itself where that is harmless, else as near as can be.

    It has lower-case letters, digits, ``.``, ``_`` and ``-`` only and at most 72 characters; ids that differ get
    names that differ, also where the file system takes ``A`` for ``a``.
    """
    harmless = len(identity) <= LENGTH and _HARMLESS.fullmatch(identity)
    if harmless and not _RESERVED.fullmatch(identity) and not _MARKED.fullmatch(identity):
        return identity
    plain = unicodedata.normalize("NFKD", identity).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-")[:LENGTH]
    mark = sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{words or 'learner'}-{mark}"


def in_order(name: str) -> tuple[str, ...]:
    """A key by which ``1.10`` comes after ``1.9``; names without numbers come last."""
    return tuple(
        f"{int(part):08}" if part.isascii() and part.isdigit() else f"~{part}" for part in name.split(".")
    )
