"""Running tests and telling what came of it."""
