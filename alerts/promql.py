"""Static analysis of PromQL: the series that an expression reads and the labels of its result.

Rules, annotations and dashboards are checked with it. An unknown metric, an unknown label or a join that
drops a label raises `Wrong`, instead of an empty panel or an alert that never fires.
"""

import re
from collections.abc import Iterable, Mapping

import promql_parser as parser

LabelNames = frozenset[str]
SeriesLabels = Mapping[str, LabelNames]
"""The labels of every series, by name."""

ANY = "*"
"""In a schema: the series may have further labels that are not known beforehand, such as pod labels."""

_NO_LABELS: LabelNames = frozenset()
_KEEP_SERIES = ("topk", "bottomk", "limitk", "limit_ratio")
_SET_OPERATORS = ("and", "or", "unless")
_COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
_KEEP_NAME = (
    "last_over_time",
    "first_over_time",
    "sort",
    "sort_desc",
    "sort_by_label",
    "sort_by_label_desc",
    "label_replace",
    "label_join",
)


class Wrong(ValueError):
    """An error in an expression, in one line."""


def labels_of(expression: str, schema: SeriesLabels) -> LabelNames:
    """Returns the labels that the result may have. Raises Wrong."""
    try:
        parsed = parser.parse(expression)
    except ValueError as error:
        raise Wrong(f"not PromQL: {error}") from None
    return _labels(parsed, schema)


def keeps_name(expression: str) -> bool:
    """Whether the result may keep a metric name, which is an additional column in a table."""
    return _keeps_name(parser.parse(expression))


def names_in(expression: str, schema: SeriesLabels) -> frozenset[str]:
    """Returns the series that the expression reads."""
    found: set[str] = set()

    def visit(node: parser.Expr) -> None:
        if isinstance(node, parser.VectorSelector):
            found.update(_selected(node, schema))
        for child in children(node):
            visit(child)

    visit(parser.parse(expression))
    return frozenset(found)


def _labels(node: parser.Expr, schema: SeriesLabels) -> LabelNames:
    match node:
        case parser.VectorSelector():
            return _selector_labels(node, schema)
        case parser.AggregateExpr():
            return _aggregate_labels(node, schema)
        case parser.BinaryExpr():
            return _binary_labels(node, schema)
        case parser.Call():
            return _call_labels(node, schema)
        case _:
            inner = [_labels(child, schema) for child in children(node)]
            return inner[0] if inner else _NO_LABELS


def _keeps_name(node: parser.Expr) -> bool:
    match node:
        case parser.VectorSelector():
            return True
        case parser.AggregateExpr():
            return str(node.op) in _KEEP_SERIES and _keeps_name(node.expr)
        case parser.BinaryExpr():
            return _result_keeps_name(node)
        case parser.Call():
            return node.func.name in _KEEP_NAME and any(map(_keeps_name, children(node)))
        case parser.UnaryExpr():
            return False
        case _:
            return any(map(_keeps_name, children(node)))


def _result_keeps_name(node: parser.BinaryExpr) -> bool:
    operator, modifier = str(node.op), node.modifier
    if operator == "or":
        return _keeps_name(node.lhs) or _keeps_name(node.rhs)
    if operator in _SET_OPERATORS:
        return _keeps_name(node.lhs)
    if operator not in _COMPARISONS or (modifier is not None and modifier.return_bool):
        return False
    # A one-to-one match with on () keeps only these labels.
    matching = modifier.matching if modifier is not None else None
    one_to_one = modifier is not None and modifier.card == parser.VectorMatchCardinality.OneToOne
    if matching is not None and _is_on(matching) and one_to_one:
        return False
    return _keeps_name(node.lhs) or (_is_scalar(node.lhs) and _keeps_name(node.rhs))


def children(node: parser.Expr) -> list[parser.Expr]:
    """Returns the direct subexpressions."""
    match node:
        case parser.MatrixSelector():
            return [node.vector_selector]
        case parser.BinaryExpr():
            return [node.lhs, node.rhs]
        case parser.Call():
            return list(node.args)
        case parser.AggregateExpr():
            return [node.expr, *([node.param] if node.param is not None else [])]
        case parser.SubqueryExpr() | parser.ParenExpr() | parser.UnaryExpr():
            return [node.expr]
        case _:
            return []


def _selected(node: parser.VectorSelector, schema: SeriesLabels) -> list[str]:
    if node.name:
        if node.name not in schema:
            raise Wrong(f"there is no metric {node.name}")
        return [node.name]
    for matcher in node.matchers.matchers:
        if matcher.name == "__name__":
            pattern = matcher.value if matcher.op == parser.MatchOp.Re else re.escape(matcher.value)
            if names := [name for name in schema if re.fullmatch(pattern, name)]:
                return names
            raise Wrong(f"no metric has a name like {matcher.value}")
    raise Wrong("a selector without a metric's name")


def _selector_labels(node: parser.VectorSelector, schema: SeriesLabels) -> LabelNames:
    names = _selected(node, schema)
    labels = frozenset().union(*(schema[name] for name in names))
    used = [matcher.name for matcher in node.matchers.matchers if matcher.name != "__name__"]
    _must_have(labels, used, f"{node.name or names[0]} has no label")
    return labels


def _aggregate_labels(node: parser.AggregateExpr, schema: SeriesLabels) -> LabelNames:
    inner = _labels(node.expr, schema)
    operator = str(node.op)
    made = frozenset({node.param.val}) if isinstance(node.param, parser.StringLiteral) else _NO_LABELS
    if node.modifier is None:
        return inner if operator in _KEEP_SERIES else made
    named = node.modifier.labels
    _must_have(inner, named, f"{operator}: what is aggregated has no label")
    if operator in _KEEP_SERIES:
        return inner
    by = node.modifier.type == parser.AggModifierType.By
    return (frozenset(named) if by else inner - frozenset(named)) | made


def _binary_labels(node: parser.BinaryExpr, schema: SeriesLabels) -> LabelNames:
    left, right = _labels(node.lhs, schema), _labels(node.rhs, schema)
    if _is_scalar(node.lhs) or _is_scalar(node.rhs):
        return right if _is_scalar(node.lhs) else left
    operator, matching = str(node.op), node.modifier.matching if node.modifier else None
    if matching is None:
        if operator not in _SET_OPERATORS and left != right:
            only = ", ".join(sorted(left ^ right))
            raise Wrong(f"the two sides of {operator} differ in their labels ({only}) and there is no on ()")
    elif _is_on(matching):
        for side, labels in (("left", left), ("right", right)):
            _must_have(labels, matching.labels, f"{operator}: the {side} side has no label")
    if operator in _SET_OPERATORS:
        return left | right if operator == "or" else left
    return _joined_labels(node, left, right)


def _joined_labels(node: parser.BinaryExpr, left: LabelNames, right: LabelNames) -> LabelNames:
    modifier = node.modifier
    if modifier is None or modifier.matching is None:
        return left
    cardinality = parser.VectorMatchCardinality
    brought = list(modifier.group_labels or ())
    if modifier.card == cardinality.ManyToOne:
        _must_have(right, brought, f"{node.op}: the right side has no label")
        return left | frozenset(brought)
    if modifier.card == cardinality.OneToMany:
        _must_have(left, brought, f"{node.op}: the left side has no label")
        return right | frozenset(brought)
    matched = frozenset(modifier.matching.labels)
    return matched if _is_on(modifier.matching) else left - matched


def _is_on(matching: parser.LabelModifier) -> bool:
    return str(matching).startswith("on")


def _call_labels(node: parser.Call, schema: SeriesLabels) -> LabelNames:
    name, inner = node.func.name, [_labels(argument, schema) for argument in node.args]
    if name in ("label_replace", "label_join"):
        texts = [argument.val for argument in node.args if isinstance(argument, parser.StringLiteral)]
        sources = texts[2:3] if name == "label_replace" else texts[2:]
        _must_have(inner[0], sources, f"{name}: there is no label")
        return inner[0] | {texts[0]}
    if name.startswith("absent"):
        return _equal_matchers(node.args[0])
    if name in ("vector", "scalar", "time"):
        return _NO_LABELS
    return max(inner, key=len, default=_NO_LABELS)


def _equal_matchers(node: parser.Expr) -> LabelNames:
    while not isinstance(node, parser.VectorSelector):
        (node, *_) = children(node)
    equal = [m.name for m in node.matchers.matchers if m.op == parser.MatchOp.Equal]
    return frozenset(equal) - {"__name__"}


def _is_scalar(node: parser.Expr) -> bool:
    match node:
        case parser.NumberLiteral() | parser.StringLiteral():
            return True
        case parser.Call():
            return node.func.name in ("scalar", "time", "pi")
        case parser.ParenExpr() | parser.UnaryExpr():
            return _is_scalar(node.expr)
        case parser.BinaryExpr():
            return _is_scalar(node.lhs) and _is_scalar(node.rhs)
        case _:
            return False


def _must_have(labels: LabelNames, wanted: Iterable[str], what: str) -> None:
    if ANY in labels:
        return
    for label in wanted:
        if label not in labels:
            raise Wrong(f"{what} {label}; it has {', '.join(sorted(labels)) or 'none'}")
