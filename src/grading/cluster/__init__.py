"""Where one machine is too small for a class: the same jobs on the workers of a Dask cluster."""
