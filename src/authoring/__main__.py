"""`python -m authoring <command>`: the authors' commands, which `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "starter": Command("authoring.starter:starter", "generate the starter from the reference, or check it"),
    "check": Command("authoring.gates:prove", "prove that reference, starter, tests and book agree"),
    "book": Command("authoring.book:book", "serve the book, or build it"),
    "proto": Command("authoring.proto:proto", "make the gRPC code anew from its description"),
    "survivors": Command(
        "authoring.survivors:survivors", "list changes of the reference that no test notices"
    ),
}

if __name__ == "__main__":
    run(COMMANDS)
