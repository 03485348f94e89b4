"""GPUTally: every GPU second, byte and joule, charged to whoever used it."""

__version__ = "0.2.0"
