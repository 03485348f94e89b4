"""Fetches from package registries that fail: those without an answer are repeated, the others explained."""

import re
from collections.abc import Callable, Sequence

from tools import Failed
from tools.dependencies.progress import Work

# In the words of apt, pip, go, npm, yarn and cargo.
_NO_ANSWER = re.compile(
    r"(?i)connection (refused|reset|broken|timed out)|could not (connect|resolve)|no such host|i/o timeout"
    r"|TLS handshake|unexpected EOF|temporary failure|network is unreachable|failed to download from"
    r"|\b(ECONNREFUSED|ECONNRESET|ENOTFOUND|ETIMEDOUT|EAI_AGAIN)\b|\b(502 Bad|503 Service|504 Gateway)"
)
_GONE = re.compile(
    r"^E: Version .* was not found|Unable to locate package|No matching distribution found"
    r"|\b(403 Forbidden|404 Not Found|410 Gone)\b|unknown revision|\b(ETARGET|E404)\b|could not find `",
    re.MULTILINE,
)


def fetched(make: Callable[[], None], work: Work, table: str, programs: Sequence[str]) -> None:
    """Runs a recipe; once more if a registry did not answer. Raises Failed, with what to do."""
    for last in (False, True):
        begin = work.log.stat().st_size
        try:
            make()
            return
        except Failed as failure:
            printed = work.log.read_bytes()[begin:].decode(errors="replace")
            if _NO_ANSWER.search(printed) and not last and not work.stop.is_set():
                work.say("a package registry did not answer; trying once more")
                continue
            raise Failed(f"{failure}\n{_advice(printed, table, programs)}") from None


def _advice(printed: str, table: str, programs: Sequence[str]) -> str:
    own = f"set GPUTALLY_PROGRAMS={','.join(f'{program}=PATH' for program in programs)} to use your own."
    if _NO_ANSWER.search(printed):
        return f"A package registry did not answer. Check the network, or {own}"
    if _GONE.search(printed):
        line = f"[{table}] in tools/programs.toml (docs/programs.md)"
        return f"The registry lacks this version. Change {line}, or {own}"
    return f"S{own[1:]}"
