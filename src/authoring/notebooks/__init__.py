"""`pdm run notebooks`: the notebooks, made from their texts and run on the reference."""
