"""The book: `pdm run book`, the preprocessor that fills in its boxes, and what the gates find in it."""

from authoring.book.command import book

__all__ = ["book"]
