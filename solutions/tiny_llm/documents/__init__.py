"""Prompts with documents that don't see one another (Days 4.4 and 4.5)."""
