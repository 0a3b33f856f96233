"""One run over a class: what is new is graded, what was graded before is kept, and reports are written of all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from rich.console import Console

from grading.marks import Marks, write_marks
from grading.policy.lateness import apply
from grading.policy.policy import Policy
from grading.running.children import RunJobs, marks_of, run_jobs
from grading.running.comparing import compare_class
from grading.running.kept import Kept
from grading.running.one import refused_marks
from grading.running.progress import Watch, result_line
from grading.running.rules import Job, Judge, Rules, Surveyed, Write
from grading.running.survey import survey, without_submission
from grading.submissions.entries import Entry
from grading.submissions.members import shown
from grading.submissions.roster import Listed


@dataclass(frozen=True)
class ClassRun:
    """What is asked for.

    ``jobs`` submissions are graded at the same time; ``again`` grades what hasn't changed, too; ``similar``
    writes the list of similar submissions; ``run_jobs`` says where the grading is done.
    """

    rules: Rules
    policy: Policy
    entries: Sequence[Entry]
    roster: Sequence[Listed]
    kept: Kept
    jobs: int
    again: bool = False
    similar: bool = False
    run_jobs: RunJobs = run_jobs


@dataclass
class Outcome:
    """The marks of the class by submission, before the policy, and how many of them came out in which way."""

    marks: dict[str, Marks] = field(default_factory=dict)
    graded: int = 0
    before: int = 0
    refused: int = 0
    failed: int = 0

    def describe(self) -> str:
        """The counts in words."""
        counts = (
            (self.graded, "graded"),
            (self.before, "as before"),
            (self.refused, "refused"),
            (self.failed, "not graded, because the grader failed"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)


@dataclass(frozen=True)
class Plan:
    """What there is to do: all submissions, those of them to grade, and the marks that still hold."""

    surveyed: tuple[Surveyed, ...]
    to_grade: tuple[Surveyed, ...]
    known: dict[str, Marks]

    def lines(self) -> list[str]:
        """What a run would do with each submission."""
        lines = []
        for each in self.surveyed:
            state = each.refusal or ("as before" if each.entry.name in self.known else "to be graded")
            lines.append(f"{shown(each.student.id)}  {shown(each.entry.name)}  {state}")
        return lines


def plan_run(run: ClassRun, progress: Console) -> Plan:
    """Look into all submissions; nothing is written.

    Raises:
        CourseError: two submissions belong to one learner, or a program that reads them is missing.
    """
    surveyed = []
    with Watch(progress, "reading", len(run.entries)) as watch:
        for each in survey(run.entries, run.roster, run.rules.layouts, run.policy.has_due):
            surveyed.append(each)
            watch.step("")
    known = {}
    for each in surveyed:
        marks = None if run.again else run.kept.find(each, run.rules)
        if marks is not None:
            known[each.entry.name] = marks
    to_grade = [each for each in surveyed if not each.refusal and each.entry.name not in known]
    return Plan(tuple(surveyed), tuple(to_grade), known)


def grade_class(run: ClassRun, judge: Judge, write: Write, progress: Console) -> Outcome:
    """Grade what is new, and have the reports of the whole class written.

    The marks of each submission are written as soon as it is graded, so that a run that was ended can go on.

    Args:
        run: what is asked for.
        judge: runs the tests; a function of a module.
        write: writes the reports; it gets the marks with the policy applied.
        progress: where to show how far the run is.

    Raises:
        CourseError: another run writes there, or nothing can be written.
        KeyboardInterrupt: all processes have ended; what was graded is kept.
    """
    with run.kept.locked():
        plan = plan_run(run, progress)
        outcome = Outcome(dict(plan.known), before=len(plan.known))
        for each in plan.surveyed:
            if each.refusal:
                marks = refused_marks(run.rules, each)
                write_marks(marks, run.kept.target(each.entry.name))
                outcome.marks[each.entry.name] = marks
                outcome.refused += 1
        _grade(run, plan.to_grade, judge, outcome, progress)
        ordered = [outcome.marks[each.entry.name] for each in plan.surveyed]
        absent = [_absent(run.rules, one) for one in without_submission(run.roster, plan.surveyed)]
        write([apply(run.policy, marks) for marks in (*ordered, *absent)], run.kept.folder)
        if run.similar:
            good = [each for each in plan.surveyed if not each.refusal]
            compare_class(run.rules, good, run.kept.work, run.kept.folder)
    return outcome


def _grade(
    run: ClassRun, to_grade: Sequence[Surveyed], judge: Judge, outcome: Outcome, progress: Console
) -> None:
    jobs = [Job(run.rules, each, run.kept.target(each.entry.name), run.kept.work) for each in to_grade]
    with (
        Watch(progress, "grading", len(jobs)) as watch,
        closing(run.run_jobs(jobs, judge, run.jobs, watch.tick)) as ended,
    ):
        for job, code in ended:
            marks = marks_of(job, code)
            outcome.marks[job.surveyed.entry.name] = marks
            outcome.graded += code == 0
            outcome.failed += code != 0
            watch.step(result_line(marks))


def _absent(rules: Rules, listed: Listed) -> Marks:
    """The marks of a learner of the roster who has handed in nothing."""
    nothing = Surveyed(Entry(rules.course.root), listed.student, refusal="nothing was handed in")
    return replace(refused_marks(rules, nothing), submission="")
