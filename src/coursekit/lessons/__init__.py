"""What the lessons say, and what the packages hold of it."""
