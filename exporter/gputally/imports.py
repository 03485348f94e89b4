"""Postpones imports, and forgets modules that only the start needs: it saves memory and time."""

import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

UNUSED = (
    *("array", "asyncio.sslproto", "asyncio.staggered", "fcntl", "inspect", "ipaddress"),
    *("locale", "ntpath", "shutil", "tempfile", "textwrap"),
)
"""What dataclasses, asyncio, pathlib and pynvml import for functions that serving does not call: 2.3 MiB.

None of it reports errors: that must work also when nothing can be imported any more.
"""


def postpone(names: Iterable[str]) -> None:
    """Each module is loaded when an attribute of it is used first. Call it before it is imported."""
    for name in names:
        if name not in sys.modules:
            sys.modules[name] = _postponed(name)


def forget(names: Iterable[str]) -> None:
    """Frees the memory of each module once nothing refers to its contents; a new import loads it anew."""
    for name in names:
        module = sys.modules.pop(name, None)
        package, _, child = name.rpartition(".")
        if getattr(sys.modules.get(package), child, None) is module:
            delattr(sys.modules[package], child)


def _postponed(name: str) -> ModuleType:
    stub = ModuleType(name)

    def load(attribute: str) -> Any:
        if sys.modules.get(name) is stub:
            del sys.modules[name]
        module = import_module(name)
        vars(stub).update(vars(module))
        return getattr(module, attribute)

    vars(stub)["__getattr__"] = load
    return stub
