"""`python -m notebooks <command>`: what `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "lab": Command("notebooks.opening:lab", "open a day's notebook in JupyterLab"),
}

if __name__ == "__main__":
    run(COMMANDS)
