"""Opening a model's files: only ordinary ones that can be read, and no text that is absurdly long."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tiny_llm.loading.errors import WeightsError, unreadable

_MOST_TEXT = 256 * 2**20  # bytes; the largest tokenizer.json of today has about 35 MB


def is_there(path: Path) -> bool:
    """Whether the folder has an entry of that name, be it only a link that leads nowhere."""
    return os.path.lexists(path)


def check_file(path: Path) -> Path:
    """The path of an ordinary file that can be read.

    A pipe or a device is refused: reading it might never end.

    Raises:
        WeightsError: it is a folder, a link that leads nowhere or not an ordinary file, or it mustn't be read.
    """
    if path.is_symlink() and not path.exists():
        raise WeightsError(f"{path} is a link to a file that isn't there: download the model again")
    if path.is_dir():
        raise WeightsError(f"{path} is a folder; a file is needed: download the model again")
    if path.exists() and not path.is_file():
        raise WeightsError(f"{path} isn't an ordinary file: download the model again")
    try:
        path.open("rb").close()
    except OSError as error:
        raise unreadable(path, error) from error
    return path


def read_text(path: Path) -> str:
    """The text of a file in UTF-8.

    Raises:
        WeightsError: as for :func:`check_file`, or it is far too long, or isn't text.
    """
    try:
        size = check_file(path).stat().st_size
        if size > _MOST_TEXT:
            raise WeightsError(f"{path} has {size:,} bytes, too many for such a file: download it again")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        WeightsError: the file can't be read, isn't JSON, or isn't an object.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise WeightsError(f"{path} doesn't hold a JSON object: download it again")
    return content


def damaged(path: Path, reason: str) -> WeightsError:
    """The error for a file whose content makes no sense."""
    return WeightsError(f"{path} is damaged or only half a file ({reason}): download it again")
