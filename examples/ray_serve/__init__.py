"""The engine of Day 4.6 behind Ray Serve: several replicas, and each prefix always at the same one."""
