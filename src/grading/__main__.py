"""`python -m grading <command>`: the instructor's commands, which `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "grade": Command("grading.command:grade", "grade the submissions of a class"),
    "submit": Command(
        "grading.submit:submit", "make the file to hand in, and check what the grader will see"
    ),
}

if __name__ == "__main__":
    run(COMMANDS)
