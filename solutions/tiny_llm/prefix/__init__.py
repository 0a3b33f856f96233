"""Pages that outlive their request: prefixes that several requests share (Day 4.1)."""
