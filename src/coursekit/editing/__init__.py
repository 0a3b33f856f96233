"""Changing single functions of a source file and nothing around them."""
