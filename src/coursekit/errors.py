"""The one kind of error that a user of the course is meant to read."""

from __future__ import annotations


class CourseError(Exception):
    """What is wrong and what to do about it, in one line.

    The command line prints the message without a stack trace and exits with code 2.
    """
