"""The error that loading a model raises."""

from __future__ import annotations


class WeightsError(Exception):
    """A model that can't be loaded: one line that says what is wrong and what to do about it.

    It is meant for the person at the keyboard, so programs print it and leave with exit code 2.
    """
