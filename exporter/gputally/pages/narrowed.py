"""`collect[]` and `exclude[]`: a scrape of some groups of metrics.

As node_exporter has them for its collectors (`ServeHTTP` in its node_exporter.go): both at once and an
unknown name in `collect[]` are refused with 400, an unknown name in `exclude[]` is ignored.
"""

from collections.abc import Collection
from dataclasses import dataclass

MOST_PARAMETERS = 256


class BadQueryError(ValueError):
    """The query cannot be answered."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """What can be selected."""

    exported: Collection[str]
    """The groups that a scrape without parameters has."""
    known: Collection[str]
    """All groups."""

    def groups(self, query: str) -> frozenset[str] | None:
        """None where the query selects nothing. Raises BadQueryError."""
        from urllib.parse import parse_qs  # noqa: PLC0415  # few scrapes have a query

        try:
            parameters = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
        except ValueError:
            raise BadQueryError(f"more than {MOST_PARAMETERS} parameters") from None
        collect, exclude = parameters.get("collect[]"), parameters.get("exclude[]")
        if collect and exclude:
            raise BadQueryError("collect[] and exclude[] cannot be combined")
        if exclude:
            return frozenset(self.exported) - frozenset(exclude)
        if not collect:
            return None
        for name in collect:
            if name not in self.known:
                groups = ", ".join(sorted(self.exported))
                raise BadQueryError(f"collect[]: there is no group {name!r}; exported groups: {groups}")
            if name not in self.exported:
                raise BadQueryError(f"collect[]: the group {name} is not exported (--metrics)")
        return frozenset(collect)
