"""Day 4.7: weights and activations in 8 bits and less, in registers, and a block that is one kernel."""

# Task 1: weights laid out


# Task 2: activations in 8 bits


# Task 3: the multiplication


# Task 4: small operations, fused


# Task 5: attention in tiles


# Task 6: the block and the model
