"""How the process that runs a learner's code is shut in."""
