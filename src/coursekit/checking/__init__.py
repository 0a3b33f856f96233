"""Behind `check`: comparing arrays and recognising likely causes."""
