"""Long fuzzing of the parsers of untrusted input."""
