"""`python -m window <command>`: the window, which `pdm run window` opens."""

from coursekit.cli import Command, run

COMMANDS = {
    "window": Command("window.program:window", "watch an engine at work in the browser, step by step"),
}

if __name__ == "__main__":
    run(COMMANDS)
