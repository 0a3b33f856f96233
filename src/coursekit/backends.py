"""The frameworks that the course can be done in, with the package of each, and the devices."""

from __future__ import annotations

from enum import StrEnum

BACKEND_VARIABLE = "TINY_LLM_BACKEND"
"""Which framework's modules `tiny_llm` imports."""


class Backend(StrEnum):
    """The framework that holds the learner's arrays."""

    TORCH = "torch"
    MLX = "mlx"

    @classmethod
    def of(cls, package: str) -> Backend:
        """The framework whose track a package is."""
        return next(backend for backend in cls if backend.package == package)

    @property
    def package(self) -> str:
        return "tiny_llm" if self is Backend.TORCH else "tiny_llm_mlx"

    @property
    def option(self) -> str:
        """What a command to type needs at its end to mean this backend; torch is meant without a word."""
        return "" if self is Backend.TORCH else f" --backend {self}"


class Device(StrEnum):
    """Where arrays are put."""

    CPU = "cpu"
    CUDA = "cuda"
    MPS = "mps"
