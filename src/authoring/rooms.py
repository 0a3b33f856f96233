"""The rooms of `src` beside the learner's packages, one for each audience, and which others each may import."""

MAY_IMPORT = {
    "coursekit": (),
    "programs": ("coursekit", "window"),
    "window": ("coursekit", "programs"),
    "benchmarks": ("coursekit", "programs"),
    "notebooks": ("coursekit",),
    "authoring": ("coursekit", "grading", "notebooks"),
    "grading": ("coursekit",),
}
ROOMS = tuple(MAY_IMPORT)
