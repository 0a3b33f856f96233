"""The window, for learners: a page that shows an engine at work, step by step, and what feeds it."""
