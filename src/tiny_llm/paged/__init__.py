"""Keys and values in pages: a pool that all requests share, and engines that run on it (Week 3)."""
