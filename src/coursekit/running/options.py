"""The options that `pdm run test` and `pdm run watch` share, with their help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from coursekit.backends import Backend, Device

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DAY] [-- PYTEST ARGUMENTS]",
        help="A day such as 1.3, a task such as 1.3.2, or a week; after --: passed on to pytest.",
    ),
]
KeywordOption = Annotated[
    str | None, typer.Option("-k", metavar="NAME", help="Run only tests that have this in their names.")
]
BackendOption = Annotated[Backend, typer.Option(help="The framework that the arrays are of.")]
DeviceOption = Annotated[Device, typer.Option(help="Where the arrays are put.")]
