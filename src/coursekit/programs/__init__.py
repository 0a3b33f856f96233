"""The programs that run the engine: `pdm run main`, `batch-main`, `smoke` and `doctor`."""
