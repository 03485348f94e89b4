"""What every part of a running demo uses."""

from dataclasses import dataclass
from pathlib import Path

from tools.demonstration.console import Console
from tools.demonstration.inbox import Inbox
from tools.demonstration.plan import Plan
from tools.servers.children import Children


@dataclass(frozen=True, slots=True)
class Running:
    plan: Plan
    directory: Path
    children: Children
    inbox: Inbox
    console: Console
