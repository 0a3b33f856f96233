"""The tool for instructors: grades a whole class, with each learner's code in a process of its own."""
