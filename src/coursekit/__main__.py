"""`python -m coursekit <command>`: the learner's commands, which `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "test": Command(
        "coursekit.running.runner:run_tests",
        "test your code: the day that you name, or every day begun",
    ),
    "watch": Command(
        "coursekit.running.watch:watch_tests", "test your code after every save, and show what changed"
    ),
    "test-solution": Command(
        "coursekit.running.runner:run_suite", "run the whole test suite on the reference"
    ),
    "example": Command(
        "coursekit.book.example:example", "run the Python blocks of a day's chapter with your code"
    ),
    "hint": Command("coursekit.learner.hint:hint", "show the next of a task's three hints"),
    "progress": Command("coursekit.learner.progress:progress", "show the whole course on one screen"),
    "reset": Command(
        "coursekit.learner.reset:reset", "put a day's or a task's stubs back, keeping a copy of your code"
    ),
    "restore": Command(
        "coursekit.learner.restore:restore", "bring files back that reset or catch-up have copied"
    ),
    "diff": Command(
        "coursekit.learner.diff:diff", "show your code beside the reference's, when the task has passed"
    ),
    "catch-up": Command(
        "coursekit.learner.catch_up:catch_up", "borrow from the reference what earlier days still lack"
    ),
}

if __name__ == "__main__":
    run(COMMANDS)
