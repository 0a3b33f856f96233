"""`pdm run bench peers`: the course's engine beside engines that people use, on this machine."""
