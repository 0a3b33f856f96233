"""Which submissions resemble one another, beyond the starter and what the whole class has: a list to look at."""

from grading.similarity.finding import Pair, SharedFunction, Similarity, Unread, find_similar
from grading.similarity.writing import write_similar

__all__ = ["Pair", "SharedFunction", "Similarity", "Unread", "find_similar", "write_similar"]
