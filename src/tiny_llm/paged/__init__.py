"""Keys and values in pages: a pool of blocks that all requests share, and attention over it (Week 3)."""
