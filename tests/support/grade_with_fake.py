"""`python grade_with_fake.py ARGUMENTS`: the command `grade` with a judge that runs nothing."""

from fake_judges import by_stubs

from coursekit.cli import Command, run
from grading import command
from grading.sandbox.limits_only import LimitsOnly

if __name__ == "__main__":
    command.judge = by_stubs
    command.isolation_here = lambda without: LimitsOnly()  # type: ignore[assignment]
    run({"grade": Command("grading.command:grade", "grade")})
