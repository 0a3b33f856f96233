"""The book's chapters as the tool reads them: their blocks of Python, which learners run with their own code."""
