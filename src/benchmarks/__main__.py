"""`python -m benchmarks <command>`: the measurements, which `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "bench": Command("benchmarks.command:bench", "measure what each step of Weeks 2 to 4 gains"),
    "bench peers": Command(
        "benchmarks.peers.command:bench_peers", "measure the engine beside others that people use"
    ),
}

if __name__ == "__main__":
    run(COMMANDS)
