"""The engine over HTTP, in the form of OpenAI's API (Day 4.6, given code)."""
