"""The programs that run an engine: for those who want to see the learner's code, or the reference, at work."""
