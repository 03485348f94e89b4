"""GPUTally: every GPU second, byte and joule, charged to its owner."""

__version__ = "0.2.0"
