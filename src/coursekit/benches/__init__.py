"""`pdm run bench`: what each stage of the engine gains, measured on this machine."""

from coursekit.benches.command import bench

__all__ = ["bench"]
