"""`python -m coursekit <command>`: what every `pdm run` command of the course calls."""

from coursekit.cli import run

if __name__ == "__main__":
    run()
