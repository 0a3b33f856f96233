"""What the learners of a class have handed in, read with distrust."""
