"""The checks and tests of tools/test."""
