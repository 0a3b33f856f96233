"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

# Task 1: stop strings

# Task 2: penalties and log-probabilities

# Task 3: a whole step at once
