"""An LLM serving engine, built one day at a time.

Start at Day 1.1: `attention.py`. The book's preface says what each file is for and on which day it is written.
"""
