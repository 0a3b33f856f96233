"""The learner's own records, and the commands that show or change how far the learner is."""
