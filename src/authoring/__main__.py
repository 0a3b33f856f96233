"""`python -m authoring <command>`: the authors' commands, which `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "starter": Command("authoring.starter:starter", "generate the starter from the reference, or check it"),
    "check": Command("authoring.gates:prove", "prove that reference, starter, tests and book agree"),
    "book": Command("authoring.book:book", "serve the book, or build it"),
    "notebooks": Command(
        "authoring.notebooks.command:notebooks", "make the notebooks from their texts, or check them"
    ),
    "proto": Command("authoring.proto:proto", "make the gRPC code anew from its description"),
    "new-day": Command(
        "authoring.new_day:new_day", "begin a day of your own, with a skeleton that passes the gates"
    ),
    "survivors": Command(
        "authoring.survivors:survivors", "list changes of the reference that no test notices"
    ),
}

if __name__ == "__main__":
    run(COMMANDS)
