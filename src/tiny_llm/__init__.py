"""An LLM serving engine, built one day at a time.

Start at Day 1.1: `attention.py`. Each chapter of the book says which file it is about.
"""
