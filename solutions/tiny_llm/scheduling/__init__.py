"""Steps under a budget of tokens, on pages that requests share: which request brings what (Days 4.2 and 4.3)."""
