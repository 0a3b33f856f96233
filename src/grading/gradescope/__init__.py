"""Gradescope's autograder: the zip that an instructor uploads, and what it does with a submission there."""
