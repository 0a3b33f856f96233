"""The ladder of stages: what each adds to the engine, and on which day."""

from style import arrow, box, diagram, label, save

STAGES = (
    ("S0", "recompute", "1.6", "one request, everything computed again for every token"),
    ("S1", "cached", "2.1", "keys and values of past tokens are kept"),
    ("S2", "batched", "2.6", "several requests go through the model together"),
    ("S3", "continuous", "2.7", "a request joins or leaves the batch at any step"),
    ("S4", "paged", "3.2", "the cache lives in pages; rows are no longer padded"),
    ("S5", "kernel", "3.3", "compiled code walks the pages"),
    ("S6", "ragged", "3.6", "prefill and decode share one packed step"),
    ("S7", "extend", "4.2", "shared prefixes are computed once; chunks of any size"),
    ("S8", "preempt", "4.3", "out of pages: a request gives way and comes back"),
    ("S9", "documents", "4.5", "many documents, each cached for itself"),
    ("S10", "served", "4.6", "an API that streams, and a server behind it"),
)
WEEK_COLORS = {"1": "blue", "2": "green", "3": "orange", "4": "purple"}
STEP = 0.37


def draw() -> None:
    height = STEP * len(STAGES) + 0.85
    fig, ax = diagram(height=height)
    for index, (number, name, day, gain) in enumerate(STAGES):
        y = 0.15 + index * STEP
        x = 1.0 + 0.115 * index
        color = WEEK_COLORS[day[0]]
        box(ax, x, y, 1.62, STEP - 0.07, color=color)
        label(ax, x + 0.1, y + 0.15, number, color=color, align="left", bold=True)
        label(ax, x + 0.47, y + 0.15, name, align="left")
        label(ax, x + 1.72, y + 0.15, gain, color="ink", align="left", size=8.5)
        label(ax, 0.22, y + 0.15, f"Day {day}", color="muted", align="left", size=8.5)
    top = height - 0.42
    title = "The same tokens on every rung; what changes is the speed, and for how many requests"
    label(ax, 0.22, top, title, align="left", bold=True)
    arrow(ax, (0.1, 0.2), (0.1, top - 0.25), color="muted")
    save(fig, "preface_stages")


if __name__ == "__main__":
    draw()
