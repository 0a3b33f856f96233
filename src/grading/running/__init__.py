"""Grades the submissions of a class, several at a time, and keeps what was found."""
