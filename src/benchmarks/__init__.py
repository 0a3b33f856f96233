"""The measurements: for those who want to know what each step of the course gains on their machine."""
