"""Two processes that use each other's objects: the grader, and the worker in which a learner's code runs."""
