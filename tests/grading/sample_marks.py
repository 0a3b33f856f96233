"""Marks of a made-up class: learners who got further and less far through three days, some of them late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from coursekit.task_state import TaskState
from grading.marks import DayMark, Marks, Student, TaskMark

NAMES = (
    *("Ada Lovelace", "Alan Turing", "Barbara Liskov", "Édouard Lucas", "Claude Shannon", "Donald Knuth"),
    *(
        "Edsger Dijkstra",
        "Frances Allen",
        "Grace Hopper",
        "Hedy Lamarr",
        "John von Neumann",
        "Katherine Johnson",
    ),
    *("Leslie Lamport", "Margaret Hamilton", "Niklaus Wirth", "Radia Perlman", "Sophie Wilson", "Tony Hoare"),
    *("Shafi Goldwasser", "Kristen Nygaard"),
)

DAYS = (
    ("1.1", "Attention", (("Softmax", 10), ("Linear", 5), ("Scaled dot-product", 15), ("Multi-head attention", 20))),
    ("1.2", "Rotary positions", (("Frequencies", 10), ("Split halves", 20), ("Interleaved pairs", 20))),
    ("1.3", "Masks and grouped heads", (("Causal mask", 15), ("Grouped queries", 25), ("Causal attention", 10))),
)  # fmt: skip

FAILURES = {
    TaskState.WRONG: (
        "the result differs from the expected one at [{n}, 0, 1]: 0.{n}213 instead of 0.5\n"
        "{n} of 42 values differ. Likely cause: the mask is aligned at the wrong corner."
    ),
    TaskState.CRASHED: "RuntimeError: The size of tensor a ({n}) must match the size of tensor b (7)\n"
    "  src/tiny_llm/attention.py:{n}: scores = query @ key",
}

REFUSAL = "the zip file holds no folder src/tiny_llm: hand in with pdm run submit"
GRADED = datetime(2026, 11, 20, 3, 12, 44, tzinfo=UTC)
P, W, C, N, S = TaskState.PASSED, TaskState.WRONG, TaskState.CRASHED, TaskState.NOT_STARTED, TaskState.SKIPPED


def task(name: str, title: str, points: int, state: TaskState, seed: int = 3) -> TaskMark:
    """One task; ``seed`` is the number in its message."""
    planned, failed = 9, state in FAILURES
    return TaskMark(
        name=name,
        title=title,
        points=points,
        earned=points if state == P else 0,
        state=state,
        passed={P: planned, N: 0, S: 0}.get(state, 4),
        planned=planned,
        failure=FAILURES[state].format(n=seed) if failed else "",
        sentence=f"keeps the shape of its input [L={seed}]" if failed else "",
        where=f"tests/week_1/test_day_{name[2]}.py:{100 + seed}" if failed else "",
    )


def days(states: str, seed: int = 3, late: int = 0) -> tuple[DayMark, ...]:
    """Three days from a letter per task (P, W, C, N, S); ``late`` are the days by which the last is late."""
    letters = {"P": P, "W": W, "C": C, "N": N, "S": S}
    given = iter(states)
    made = []
    for name, title, tasks in DAYS:
        marks = tuple(
            task(f"{name}.{number}", what, points, letters[next(given)], seed)
            for number, (what, points) in enumerate(tasks, 1)
        )
        made.append(DayMark(name, title, f"week_1/day_{name[2]}.md", marks))
    made[2] = replace(made[2], days_late=late, kept=max(0.0, 1 - 0.1 * late))
    return tuple(made)


def marks(states: str = "PPPPPPPPPP", name: str = "Ada Lovelace", **changes: object) -> Marks:
    """One learner's marks; ``changes`` are fields of ``Marks``."""
    identity = name.lower().replace(" ", ".")
    plain = Marks(
        student=Student(identity, name, f"{identity}@example.org"),
        submission=f"{identity}.zip",
        content="c0ffee",
        course="7e57",
        draw="d1ce",
        isolation="sandlock",
        graded=GRADED,
        seconds=83.25,
        days=days(states),
        submitted=GRADED - timedelta(days=1),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


STATES = (
    *("PPPPPPPPPP", "PPPPPPPPWP", "PPPWPPPPNN", "PPWNPPWNNN", "PPPPPPPCNN", "PPPPPPPPPN"),
    *("WPNNNNNNNN", "PPPPPWPPPP", "PPPWPPPWNN", "PPCNPNNNNN", "PPPPPPPPPP", "PPPPPPPWWN"),
    *("PPPPPPPPCN", "PPPWPNNNNN", "PPWWNNNNNN", "PPPPPPPPSP", "NNNNNNNNNN", "PPPPPPWPNN"),
)


def a_class() -> list[Marks]:
    """Twenty learners: eighteen of many kinds, one whose call is forbidden, one whose submission can't be opened."""
    made = [
        marks(states, name, days=days(states, seed=3 + index, late=index % 4 if index % 5 == 0 else 0))
        for index, (states, name) in enumerate(zip(STATES, NAMES, strict=False))
    ]
    first, *others = made[0].days
    forbidden = replace(
        first.tasks[2], earned=0, shortcuts=("torch.nn.functional.scaled_dot_product_attention",)
    )
    made.append(
        marks(
            name=NAMES[18],
            days=(replace(first, tasks=(*first.tasks[:2], forbidden, first.tasks[3])), *others),
            notes=("3 files differ from the starter's given ones and were replaced.",),
        )
    )
    made.append(
        marks(
            name=NAMES[19],
            days=(),
            refusal=REFUSAL,
        )
    )
    return made


def large_class(size: int) -> list[Marks]:
    """Many learners, each as one of the twenty."""
    patterns = [each.days for each in a_class()[:18]]
    return [marks(name=f"Learner {index:03}", days=patterns[index * 7 % 18]) for index in range(size)]


HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`[a](javascript:alert(3)) "
    "![b](http://evil.example/c.png) \x1b[31m\u202e\x00\ud800\ufffe ``` ~~~ | # & {{7*7}} {% raw %} "
    "</pre></title></style> --> ]]> \\ *d* _e_ www.evil.example"
)


def hostile(states: str = "PWCNPPPPPP", text: str = HOSTILE, **changes: object) -> Marks:
    """Marks in which every text that may come from outside is ``text``."""
    plain = marks(states)
    made = [
        replace(
            day,
            tasks=tuple(
                replace(each, failure=text, sentence=text, where=text, needs=text, shortcuts=(text,))
                for each in day.tasks
            ),
        )
        for day in plain.days
    ]
    fields = {"days": tuple(made), "submission": text, "isolation": text, "notes": (text,), **changes}
    return replace(plain, student=Student(text, text, text), **fields)  # type: ignore[arg-type]


CALL = "calls torch.softmax, which may not do this task's work"


def forbidden() -> Marks:
    """All tests pass, and the first task earns nothing."""
    first, *others = days("PPPPPPPPPP")
    softmax = replace(first.tasks[0], earned=0, shortcuts=("torch.softmax",))
    return marks(days=(replace(first, tasks=(softmax, *first.tasks[1:])), *others))


def late(given: Marks) -> Marks:
    """The last day keeps 0.7 and counts half."""
    *others, last = given.days
    return replace(given, days=(*others, replace(last, days_late=3, kept=0.7, weight=0.5)))


# What the runner of Classroom 50 hands to its autograder.
RUNNER = {
    "CLASSROOM": "llm",
    "ASSIGNMENT": "week-1",
    "USERNAME": "ada",
    "SUBMISSION_TAG": "submit/2026-11-19T03-12-44Z-a1b2c3d",
    "COMMIT_URL": "https://git.example/ada/commit/a1b2c3d",
    "RELEASE_URL": "https://git.example/ada/releases/1",
    "REVIEW_URL": "https://git.example/ada/compare/0...1",
}
