"""The code of tools/release: the files of a release, the same bytes from the same commit."""
