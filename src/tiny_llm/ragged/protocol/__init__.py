"""What client and server say to each other: tiny_llm.proto, and the code that `pdm run proto` makes of it."""
