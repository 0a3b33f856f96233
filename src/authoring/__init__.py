"""The authors' tool: for those who write the course (the starter, the gates, the book, generated code)."""
