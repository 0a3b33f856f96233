# %% [markdown]
# # Day 2.3: Lanes and layouts, to play with
#
# The chapter explains and the tests judge; here you look into the registers, find weights in memory, and measure how
# near your kernel comes to the limits of your machine. The cells call your code; where a task is still missing, a
# line says which.

# %%
# %load_ext notebooks

# %%
import numpy as np
from matplotlib.colors import ListedColormap

from notebooks import COLORS, PALE, Picture, choice, explore, lab, measure, new_figure, settings, slider

# %% [markdown]
# ## Predict
#
# A vector register has 16 lanes. The codes of a matrix are to be multiplied by x and summed up. Should 16 lanes hold
# 16 inputs of one output, or the same input of 16 outputs? What does each have to do at the end? Write it down, then
# move through the steps.
#
# Here are 32 outputs of 64 inputs, in groups of 32. A colored cell is a weight that has been multiplied; the dark
# ones are in the register now. The bars on the right are the finished outputs.

# %%
OUTPUTS, INPUTS, GROUP, LANES = 32, 64, 32, 16
STEPS = OUTPUTS * INPUTS // LANES


def weights_of_step(step: int, lanes_hold: str) -> tuple[np.ndarray, np.ndarray]:
    """Output and input of each of the 16 weights."""
    lanes = np.arange(LANES)
    if lanes_hold == "16 inputs":
        output, register = divmod(step, INPUTS // LANES)
        return np.full(LANES, output), register * LANES + lanes
    half, put_in = divmod(step, INPUTS)
    return half * LANES + lanes, np.full(LANES, put_in)


def registers(step: int, lanes_hold: str) -> Picture:
    cells = np.zeros((OUTPUTS, INPUTS))
    for done in range(step):
        cells[weights_of_step(done, lanes_hold)] = 1
    finished = cells.all(1)
    across = int(sum(cells[:, first : first + GROUP].all(1).sum() for first in range(0, INPUTS, GROUP)))
    cells[weights_of_step(min(step, STEPS - 1), lanes_hold)] = 2 if step < STEPS else 1
    across = across if lanes_hold == "16 inputs" else 0
    figure, (left, right) = new_figure(height=3, cols=2, width_ratios=[12, 1], sharey=True)
    colors = [PALE["muted"], COLORS["yellow"] + "66", COLORS["blue"]]
    left.imshow(
        cells, cmap=ListedColormap(colors), vmin=0, vmax=2, aspect="auto", extent=(0, INPUTS, OUTPUTS, 0)
    )
    left.set(xlabel="input", ylabel="output", ylim=(OUTPUTS, 0))
    left.set_title(f"step {step} of {STEPS}; sums added across a register: {across}")
    right.barh(np.arange(OUTPUTS) + 0.5, finished, height=0.8, color=COLORS["green"])
    right.set(xticks=[], xlim=(0, 1), xlabel="done")
    said = f"{int(finished.sum())} outputs are finished, and {across} sums were added across a register"
    return Picture(figure, f"Lanes hold {lanes_hold}: after {step} of {STEPS} steps {said}.")


explore(
    registers, step=slider(0, STEPS, 20), lanes_hold=choice(["16 inputs", "16 outputs"], title="lanes hold")
)

# %% [markdown]
# Both need 128 steps. How many sums across would a whole matrix of 576 inputs and 1,536 outputs need? Which of the
# two could end early if you wanted only a few of the outputs?
#
# ## Experiment 1: where an output lives
#
# Your `pack_outputs` moves the codes. The pictures show all the nibbles of a matrix of 96 outputs and 64 inputs, in
# the order of memory, 32 bytes to a line; dark is a byte with a code of the outputs you choose. On the left is the
# file's order, on the right the kernel's. Look at one output first, then at 16. In which order do they lie side by
# side? Which output has its codes in the same bytes as output 5? And which one in those of output 95?


# %%
def bytes_of(first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which bytes hold codes of these outputs: as a file has them, and as the kernel wants them."""
    marked = np.zeros((96, 2, 16), np.int32)
    marked[first : first + count] = 0x11  # a 1 in both nibbles of each byte
    scales = lab.array(np.ones((96, 2)), "float16")
    quantized = lab.quantize.QuantizedTensor(lab.array(marked).byte(), scales, scales)
    packed = lab.kernels.quantized_matmul_cpu.pack_outputs(quantized)
    return marked != 0, packed.nibbles != 0


def two_layouts(output: int, how_many: int) -> Picture:
    first = min(output, 96 - how_many)
    file, kernel = (memory.reshape(-1, 32) for memory in bytes_of(first, how_many))
    figure, axes = new_figure(height=3.3, cols=2)
    said = []
    for at, memory, name in ((axes[0], file, "file"), (axes[1], kernel, "kernel")):
        at.imshow(memory, cmap="Blues", vmin=0, vmax=1.4, aspect="auto", interpolation="none")
        at.set(xlabel="byte of the line", ylabel="line of 32 bytes")
        at.set_title(f"{name}: lines {memory.any(1).sum()}, bytes of each {memory.any(0).sum()}")
        said.append(f"{memory.any(1).sum()} × {memory.any(0).sum()} for the {name}")
    outputs = f"outputs {first} to {first + how_many - 1}" if how_many > 1 else f"output {first}"
    return Picture(
        figure, f"Lines of memory with codes of {outputs}, and bytes in each: {' and '.join(said)}."
    )


explore(two_layouts, output=slider(0, 95, 5), how_many=choice([1, 16, 32, 64], 1, title="how many outputs"))

# %% [markdown]
# ## Experiment 2: two limits
#
# A multiplication takes at least as long as memory needs for its bytes, and at least as long as the processor needs
# for its operations. This is the time for the matrix 576 → 1,536, as these two limits allow it: with weights in
# float32 (4 bytes each), in bfloat16 (2) and in your kernel's form (0.75). Which control makes one row faster? Which
# one makes 64 rows faster? For how many rows do the three curves meet, and what moves that point?

# %%
ROWS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256])
WEIGHTS = 576 * 1536
FORMS = {"float32": (4.0, "blue"), "bfloat16": (2.0, "green"), "4 bits": (0.75, "orange")}


def least_time(rows: np.ndarray, bytes_per_weight: float, memory: float, arithmetic: float) -> np.ndarray:
    """Microseconds, for so many GB per second and billion operations per second."""
    moved = WEIGHTS * bytes_per_weight + 4 * rows * (576 + 1536)
    return np.maximum(moved / memory, 2 * rows * WEIGHTS / arithmetic) / 1e3


def two_limits(memory: int, arithmetic: int) -> Picture:
    figure, axes = new_figure(height=3)
    for name, (size, color) in FORMS.items():
        axes.plot(ROWS, least_time(ROWS, size, memory, arithmetic), "o-", color=COLORS[color], label=name)
    axes.set(xscale="log", yscale="log", xticks=ROWS, xticklabels=ROWS, ylim=(1, 10_000))
    axes.minorticks_off()
    axes.set(xlabel="rows", ylabel="least time, µs")
    axes.legend()
    one = [least_time(ROWS[:1], size, memory, arithmetic)[0] for size, _ in FORMS.values()]
    axes.set_title(f"one row: {one[0]:.0f} µs in float32, {one[2]:.0f} µs in 4 bits")
    return Picture(
        figure,
        f"With {memory} GB/s and {arithmetic} GFLOP/s, one row takes at least {one[0]:.0f} µs in float32, "
        f"{one[1]:.0f} µs in bfloat16 and {one[2]:.0f} µs in 4 bits.",
    )


explore(
    two_limits,
    memory=slider(5, 200, 30, 5, title="memory, GB/s"),
    arithmetic=slider(50, 2000, 300, 50, title="arithmetic, GFLOP/s"),
)

# %% [markdown]
# ## Measure
#
# On two cores with AVX-512 the chapter has your `KernelMatmul` at 2.0 times the speed of float32 for one row, where
# the bytes alone would allow 5.3, and on two other cores at 7 times. Here are 24 matrices in turn, so that they come
# from memory, as in a model. How many GB per second does each way get on your machine? Where does the kernel's lead
# end?

# %% tags=["measured"]
draw = np.random.default_rng(3)
count = 6 if settings.short() else 24
floats = [lab.array(draw.standard_normal((1536, 576))) for _ in range(count)]
kernels = [lab.kernels.quantized_matmul_cpu.KernelMatmul(lab.quantize.quantize(matrix)) for matrix in floats]
layers = [lab.layers.Linear(matrix) for matrix in floats]


def in_turn(ways: list, x: object) -> None:
    for way in ways:
        way(x)


for rows in (1, 4, 16, 64):
    x = lab.array(draw.standard_normal((rows, 576)))
    plain, fast = measure(in_turn, layers, x) / count, measure(in_turn, kernels, x) / count
    rates = [WEIGHTS * size / seconds / 1e9 for size, seconds in ((4, plain), (0.75, fast))]
    print(
        f"{rows:2} rows   float32 {1e6 * plain:5.0f} µs, {rates[0]:4.1f} GB/s   "
        f"4 bits {1e6 * fast:5.0f} µs, {rates[1]:4.1f} GB/s   {plain / fast:4.2f} times as fast"
    )

# %% [markdown]
# Put your float32 GB per second into Experiment 2. How far are you from the limit with one row in 4 bits?
#
# ## An open question
#
# Your kernel gets fewer GB per second out of memory than the float32 layer, though it is faster. What is the
# processor doing instead of waiting? And what would you change to come nearer to 5.3 times?
#
# <details>
# <summary>One answer</summary>
#
# It takes codes apart. For each byte it masks, shifts, widens to 32 bits, makes floats and multiplies: several
# instructions for two weights, where float32 needs one for 16 of them. So the arithmetic that the roofline counts
# isn't what bounds the kernel; unpacking is. Instructions that multiply small whole numbers help: llama.cpp rounds x
# to 8 bits for each group, and multiplies bytes by bytes, four products at a time, without making a float of any
# weight. Others look the sixteen values up in a register, as a table. And calling the kernel costs some 20 µs each
# time, which a larger matrix or several matrices in one call would share.
#
# </details>
