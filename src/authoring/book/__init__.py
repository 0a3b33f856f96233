"""The book: `pdm run book`, the preprocessor that fills in its boxes, and what its checks read."""

from authoring.book.command import book

__all__ = ["book"]
