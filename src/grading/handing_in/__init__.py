"""What a learner hands in: the files that count, what the grader will see of them, and the zip."""
