"""Day 4.5: documents on pages."""
