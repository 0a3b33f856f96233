"""`pdm run new-day`: the skeleton of a day, which passes all gates before a word of it is replaced."""

from authoring.new_day.command import new_day

__all__ = ["new_day"]
