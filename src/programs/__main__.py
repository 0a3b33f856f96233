"""`python -m programs <command>`: the programs that run an engine, which `pdm run` calls."""

from coursekit.cli import Command, run

COMMANDS = {
    "main": Command("programs.main:main", "answer one prompt with the model"),
    "chat": Command("programs.chat:chat", "chat with the model in the terminal"),
    "batch-main": Command(
        "programs.batch_main:batch_main", "answer a fixed set of prompts, several at a time"
    ),
    "serve": Command("programs.serve:serve", "serve the model over gRPC, on this machine"),
    "ask": Command("programs.ask:ask", "ask the server, and print its answer as it comes"),
    "ask-documents": Command(
        "programs.ask_documents:ask_documents", "answer questions about files that don't see one another"
    ),
    "smoke": Command("programs.smoke:smoke", "run the engine's stages and compare their tokens and speed"),
    "steps": Command("programs.steps:steps", "show what each step of Day 4.2's engine computes"),
    "doctor": Command("programs.doctor:doctor", "say what this machine offers and what is missing"),
}

if __name__ == "__main__":
    run(COMMANDS)
