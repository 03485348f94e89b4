"""Checks that texts use the terms of the project: see terms.toml."""
