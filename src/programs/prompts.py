"""The fixed prompts of `pdm run batch-main`: from a few words to several hundred tokens, in no order of length."""

from programs.passages import BREAD, CANAL_LOCK, ISLAND_LETTER, LIBRARY_NOTICE, WATER_REPORT

PROMPTS = (
    "What is the capital of France?",
    f"Summarise this letter in two sentences.\n\n{ISLAND_LETTER}",
    "What is the opposite of hot?",
    "What is a neural network? Answer in one sentence.",
    f"What must I do after the dough has doubled? Here is the recipe.\n\n{BREAD}",
    "Write one sentence about the sea.",
    "Correct the mistakes in this sentence: Yesterday we goes to the market and buyed three apple and a "
    "loafs of bread.",
    f"Summarise this text in one sentence.\n\n{WATER_REPORT}",
    "Hello! Who are you?",
    "Give me a short recipe for pancakes.",
    f"What is a canal lock?\n\n{CANAL_LOCK}",
    "I moved into a new flat last week. It has two rooms, a kitchen and a small balcony that gets the "
    "sun in the morning, and the wind all day long. I have never grown anything. Which plants would "
    "grow well on it?",
    "What does a compiler do?",
    f"When is the library open on Fridays, and how long may I keep a book?\n\n{LIBRARY_NOTICE}",
    "List the planets of the solar system, from the Sun outwards.",
    "I have flour, eggs, milk, butter, sugar, cinnamon, a jar of honey, half a lemon, and two apples "
    "that are no longer quite fresh. My oven works; my mixer is broken. Four people come to tea in less "
    "than an hour, and one of them eats no butter. What could I bake or fry for them, and in which "
    "order should I begin?",
)
"""At least one is longer than two chunks of 128 tokens, and at least one shorter than any."""

SHORT = tuple(prompt for prompt in PROMPTS if len(prompt) <= 60)
"""Those that an engine without a cache answers in tolerable time."""
