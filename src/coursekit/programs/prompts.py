"""The fixed prompts of `pdm run batch-main`: from a few words to several hundred tokens, in no order of length."""

from coursekit.programs.passages import BREAD, CANAL_LOCK, ISLAND_LETTER, LIBRARY_NOTICE, WATER_REPORT

PROMPTS = (
    "What is the capital of France?",
    f"Summarise this letter in two sentences.\n\n{ISLAND_LETTER}",
    "Name three things that float on water.",
    "Why is the sky blue? Answer in one sentence.",
    f"What must I do after the dough has doubled? Here is the recipe.\n\n{BREAD}",
    "Write one sentence about the sea.",
    "My train leaves at 14:25 and the way to the station takes 20 minutes on foot. I want to be there ten minutes "
    "before it leaves. When should I set off?",
    f"Which plans were decided on, and which was put off?\n\n{WATER_REPORT}",
    "Hello!",
    "Give me a short recipe for pancakes.",
    f"Explain in your own words how a boat goes up.\n\n{CANAL_LOCK}",
    "Rewrite this politely: You sent me the wrong shoes, they are two sizes too small, I have waited three weeks for "
    "them, and nobody answers your telephone. Send the right ones, or give me my money back.",
    "What does a compiler do?",
    f"When is the library open on Fridays, and how long may I keep a book?\n\n{LIBRARY_NOTICE}",
    "List the planets of the solar system, from the Sun outwards.",
    "I have a cat, two goldfish and a very small garden with one apple tree. I am away for ten days in July, when it is "
    "hot, and my neighbour has offered to help. Write her a short list of what she has to do each day, and what only "
    "once or twice in that time.",
)
"""At least one is longer than two chunks of 128 tokens, and at least one shorter than any."""

SHORT = tuple(prompt for prompt in PROMPTS if len(prompt) <= 60)
"""Those that an engine without a cache answers in tolerable time."""
