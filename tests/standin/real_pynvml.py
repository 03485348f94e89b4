"""The real pynvml. It has no types, and makes its exceptions when it is loaded."""

from typing import Any

import pynvml

nvml: Any = pynvml
