"""Faulty GPUs and the action to take: errors, memory, temperature, power, links and suspected hangs."""

import math

from alerts.filling import defaults
from alerts.groups import GROUPS
from alerts.settings import SETTINGS
from alerts.xids import CATALOG, XIDS, Xid
from dashboards import Json, fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, bar_gauge, now, over_time, rows, stat, timed, timeseries
from dashboards.queries import BY_GPU, MATCH_NODE
from dashboards.tables import column, table, value_columns
from dashboards.variables import CLUSTER, NODE

_SET = defaults()
_SLOW = fields.thresholds((0.001, palette.WARNING), base=palette.CLEAR)
_ONLY_YES = fields.value_texts({1: ("yes", palette.CRITICAL)})
_INFO = f"max by (cluster, node, uuid, model) (gputally_gpu_info{{{MATCH_NODE}}})"
_WITH_MODEL = f"* on (cluster, node, uuid) group_left (model) {_INFO}"
_HOUR, _DAY = 3600, 86400


def _of(metric: str, *matchers: str, more: str = "", over: str = "", within: str = "") -> str:
    """One sample per GPU: the present value, or a function `over` the window `within`."""
    selected = f"gputally_gpu_{metric}{{{', '.join((MATCH_NODE, *matchers))}}}"
    value = f"{over}({selected}[{within}])" if over else selected
    return f"max by ({BY_GPU}{', ' + more if more else ''}) ({value})"


def _count_stat(title: str, description: str, count: str, steps: Json = fields.ANY_IS_CRITICAL) -> Panel:
    """One of the tiles at the top: a number that is normally 0."""
    return stat(
        title,
        description,
        now(count),
        unit="short",
        width=6,
        height=3,
        steps=steps,
        background=True,
    )


def _throttled(reasons: str) -> str:
    return _of("throttle_active", f'reason=~"{reasons}"') + " == 1"


def _count(condition: str) -> str:
    return f"count({condition}) or vector(0)"


_XID_TIMES = _of("xid_last_timestamp_seconds", more="xid", over="last_over_time", within="$__range")
_CRITICAL_XIDS = _of(
    "xid_last_timestamp_seconds", f'xid=~"{_SET["xid_critical"]}"', over="max_over_time", within="$__range"
)
_UNCORRECTED = (
    _of("ecc_errors_total", 'type="uncorrected"', 'lifetime="volatile"')
    + " > 0 or "
    + _of("ras_errors_total", 'type="uncorrected"')
    + " > 0"
)
_PENDING_RESET = (
    "(" + _of("recovery_action", 'action!="none"') + " == 1"
    f" or {_of('remapped_rows_pending')} == 1 or {_of('retired_pages_pending')} == 1)"
)
_STALLED = f"max by ({BY_GPU}) (gpu:gputally_suspected_hang:ratio{{{MATCH_NODE}}})"
_LINKS = f'{{__name__=~"gpu:gputally_gpu_(nvlink|xgmi)_up:sum", {MATCH_NODE}}}'
_MOST_LINKS = f'{{__name__=~"gpu:gputally_gpu_(nvlink|xgmi)_up:highest", {MATCH_NODE}}}'
_LINKS_LOST = f"last_over_time({_MOST_LINKS}[15m]) - {_LINKS}"
_MARGIN = (
    f"({_of('temperature_margin_celsius')}"
    f" or {_of('temperature_slowdown_celsius')} - {_of('temperature_celsius')})"
)
_PCIE_SPEED = (
    f"max_over_time(gpu:gputally_pcie_speed:lanes{{{MATCH_NODE}}}[15m])"
    f" / last_over_time(gpu:gputally_pcie_best:lanes{{{MATCH_NODE}}}[15m]) < 1"
    f" and {_of('utilization_ratio', over='avg_over_time', within='15m')} >= {_SET['pcie_busy_ratio']}"
)
_GENERATION_3_REPLAYS = math.ceil(float(_SET["pcie_replays_per_gigatransfer"]) * 8 * 16)
_HOLDERS = (
    f"(max by ({BY_GPU}, namespace, pod) (gputally_pod_active{{{MATCH_NODE}}}) == 1"
    f" or max by ({BY_GPU}, owner) (gputally_host_active{{{MATCH_NODE}}}) == 1)"
)


def _copy_label(expression: str, label: str, *names: str) -> str:
    """Copies the label to other names, so that a table can show several columns with different texts."""
    for name in names:
        expression = f'label_replace({expression}, "{name}", "$1", "{label}", "(.+)")'
    return expression


def _xid_age_between(least: int, most: int | None) -> str:
    """GPUs whose last hardware XID is between `least` and `most` seconds old."""
    codes = f'xid=~"{_SET["xid_critical"]}|{_SET["xid_warning"]}"'
    age = f"time() - {_of('xid_last_timestamp_seconds', codes)}"
    younger = "" if most is None else f" < {most}"
    return f"{age} >= {least}{younger}"


def _xid_color(xid: Xid) -> str:
    codes = {setting.name: setting.value for setting in SETTINGS}
    for name, color in (("xid_critical", palette.CRITICAL), ("xid_warning", palette.WARNING)):
        listed = codes[name]
        if isinstance(listed, tuple) and xid.code in listed:
            return color
    return palette.FREE


def _xid_texts(attribute: str, otherwise: str) -> list[Json]:
    known = fields.value_texts(
        {xid.code: (getattr(xid, attribute), _xid_color(xid)) for xid in XIDS.values()}
    )
    rest = {"pattern": ".+", "result": {"text": otherwise, "color": palette.UNKNOWN, "index": len(XIDS)}}
    return [*known, {"type": "regex", "options": rest}]


def _alerting(severities: str) -> str:
    """The start time of each pending or firing alert about a GPU or a node."""
    chosen = f'alertname=~"GPUTally.+", severity=~"{severities}", node!="", namespace="", {MATCH_NODE}'
    return f"max by (alertname, node, gpu, model) (ALERTS_FOR_STATE{{{chosen}}})"


def _alert_texts() -> list[Json]:
    return fields.texts({alert.name: alert.fault for group in GROUPS for alert in group.alerts})


_TO_CATALOG = {"title": "NVIDIA's catalogue", "url": CATALOG, "targetBlank": True}
_NODE_COLUMN = column("node", name="Node", width=150, link=links.TO_NODE)
_WIDE_NODE_COLUMN = column("node", name="Node", width=170, link=links.TO_NODE)
_GPU_COLUMN = column("gpu", name="GPU", width=60, link=links.TO_GPU)
_MODEL_COLUMN = column("model", name="Model")
_XID_COLUMNS = (
    column("xid", name="XID", width=60, link=_TO_CATALOG),
    column("meaning", name="Meaning", width=290, mappings=_xid_texts("meaning", "not in this table")),
    fields.override("cause", displayName="Cause", mappings=_xid_texts("cause", "?"), custom__width=80),
    fields.override("action", displayName="Action", mappings=_xid_texts("action", "see NVIDIA's catalogue")),
)

DASHBOARD = dashboard(
    "health",
    "Health",
    "Faulty GPUs: errors, memory, temperature, power, links and suspected hangs, with the action to take.",
    row(
        "",
        _count_stat(
            "Lost GPUs",
            "GPUs that are detected but no longer readable. Normal is 0. Work on a lost GPU has failed: "
            "drain the node.",
            _count(f"{_of('up')} == 0"),
        ),
        _count_stat(
            "Critical XIDs",
            "GPUs with an XID in the time range that requires a reset or a repair. Normal is 0; the table "
            "XID errors shows the action.",
            _count(f"max by ({BY_GPU}) ({_CRITICAL_XIDS}) > time() - $__range_s"),
        ),
        _count_stat(
            "Uncorrected errors",
            "GPUs with a memory error since the driver was loaded that ECC or RAS did not correct. Normal "
            "is 0. Results of that GPU can be wrong: reset it.",
            _count(_UNCORRECTED),
        ),
        _count_stat(
            "Pending resets",
            "GPUs that need a reset: requested by the driver, or to repair memory. Normal is 0. Reset them "
            "when their jobs have ended.",
            _count(f"max by ({BY_GPU}) ({_PENDING_RESET})"),
            fields.ANY_IS_WARNING,
        ),
        _count_stat(
            "Thermal slowdown",
            "GPUs that run slower now because they are too hot. Normal is 0. Several in one node or rack "
            "point to fans or air flow.",
            _count(f"max by ({BY_GPU}) ({_throttled('hw_thermal_slowdown|sw_thermal_slowdown')})"),
            fields.ANY_IS_WARNING,
        ),
        _count_stat(
            "Power brake",
            "GPUs that the power supply of the node slows down now. Normal is 0; otherwise a power supply "
            "has failed or is overloaded.",
            _count(_throttled("hw_power_brake_slowdown")),
            fields.ANY_IS_WARNING,
        ),
        _count_stat(
            "Links down",
            f"NVLink and XGMI links that were up within {_SET['link_window']} and are down now. Normal is "
            "0; otherwise jobs on several GPUs fail or slow down.",
            f"sum({_LINKS_LOST}) or vector(0)",
            fields.ANY_IS_WARNING,
        ),
        _count_stat(
            "Suspected hangs",
            "GPUs with full utilisation and almost no power draw, as in a job that waits for ever. Normal "
            "is 0; Hang suspects lists the owners.",
            _count(_STALLED),
            fields.ANY_IS_WARNING,
        ),
        table(
            "XID errors",
            "Errors reported by the NVIDIA driver, newest first. Orange: act now. Yellow: act within "
            "working hours. Grey: mostly caused by applications.",
            rows(_copy_label(f"topk(100, {_XID_TIMES})", "xid", "meaning", "cause", "action") + " * 1000"),
            rows(_of("xid_code_errors", more="xid", over="last_over_time", within="$__range")),
            columns=(
                column("Value #A", name="Last", unit="dateTimeFromNow", width=150),
                _WIDE_NODE_COLUMN,
                _GPU_COLUMN,
                *_XID_COLUMNS,
                column("Value #B", name="Errors", width=75),
            ),
            hidden=("cluster", "uuid"),
            order=("Value #A", "node", "gpu", "xid", "meaning", "cause", "action", "Value #B"),
            sort_by="Last",
            no_value="No XID errors",
            width=24,
            height=8,
        ),
        table(
            "Current problems",
            "Pending and firing alerts about GPUs and nodes, most severe first. Normal is empty. The "
            "problem links to its runbook.",
            rows(f"{_alerting('critical')} * 0 + 2 or {_alerting('warning')} * 0 + 1"),
            rows(f"{_alerting('critical|warning')} * 1000"),
            columns=(
                column(
                    "Value #A",
                    name="Severity",
                    width=90,
                    mappings=fields.value_texts(
                        {2: ("critical", palette.CRITICAL), 1: ("warning", palette.WARNING)}
                    ),
                ),
                column("Value #B", name="Since", unit="dateTimeFromNow", width=150),
                _WIDE_NODE_COLUMN,
                _GPU_COLUMN,
                column("model", name="Model", width=250),
                fields.override(
                    "alertname",
                    displayName="Problem",
                    mappings=_alert_texts(),
                    links=[links.runbook("alertname")],
                ),
                # An alert about a node has no GPU.
                *(fields.override(name, noValue="") for name in ("gpu", "model")),
            ),
            order=("Value #A", "Value #B", "node", "gpu", "model", "alertname"),
            sort_by="Severity",
            no_value="No problems",
            width=24,
            height=8,
        ),
    ),
    row(
        "Memory",
        timed(
            timeseries(
                "Memory errors",
                "New ECC errors of all GPUs. A few corrected errors are harmless. An uncorrected error has "
                "ended work, and the GPU needs a reset.",
                over_time(
                    "sum by (type) (increase("
                    f'gputally_gpu_ecc_errors_total{{lifetime="volatile", {MATCH_NODE}}}[$__rate_interval]))',
                    "{{type}}",
                ),
                unit="short",
                width=8,
                bars=True,
                legend="bottom",
                calcs=("max",),
                overrides=fields.colors_of({"corrected": palette.HELD, "uncorrected": palette.CRITICAL}),
            ),
            step="5m",
        ),
        table(
            "GPUs with memory errors",
            "Errors over the lifetime of the GPU, retired rows or pages, and repairs that are pending "
            "until a reset. Replace a GPU with recurring uncorrected errors or a failed repair.",
            *(
                rows(
                    "topk(50, "
                    + _of("ecc_errors_total", 'lifetime="aggregate"', f'type="{kind}"')
                    + f" > 0) {_WITH_MODEL}"
                )
                for kind in ("uncorrected", "corrected")
            ),
            rows(
                f"topk(50, sum by ({BY_GPU}) ({_of('remapped_rows', more='cause')}"
                f" or {_of('retired_pages', more='cause')}) > 0) {_WITH_MODEL}"
            ),
            rows(
                f"topk(50, ({_of('remapped_rows_pending')} or {_of('retired_pages_pending')}) > 0)"
                f" {_WITH_MODEL}"
            ),
            rows(f"topk(50, {_of('remapped_rows_failure')} > 0) {_WITH_MODEL}"),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                _MODEL_COLUMN,
                column("Value #A", name="Uncorrected", width=115, steps=fields.CELL_ANY_IS_CRITICAL),
                column("Value #B", name="Corrected", width=90),
                column("Value #C", name="Retired", width=85),
                column(
                    "Value #D",
                    name="Pending",
                    width=85,
                    mappings=_ONLY_YES,
                    steps=fields.CELL_ANY_IS_CRITICAL,
                ),
                column(
                    "Value #E", name="Failed", width=70, mappings=_ONLY_YES, steps=fields.CELL_ANY_IS_CRITICAL
                ),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "model", *value_columns(5)),
            sort_by="Uncorrected",
            no_value="No memory errors",
            width=16,
        ),
        table(
            "Spare memory rows",
            "Memory banks with few or no spare rows. Normal is empty. A bank without spare rows cannot "
            "repair the next fault: plan a replacement.",
            rows(
                "topk(50, "
                + _of("remap_banks", 'availability=~"low|none"', more="availability")
                + f" > 0) {_WITH_MODEL}"
            ),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                _MODEL_COLUMN,
                column(
                    "availability",
                    name="Spare rows",
                    width=100,
                    mappings=fields.value_texts(
                        {"low": ("few", palette.WARNING), "none": ("none", palette.CRITICAL)}
                    ),
                ),
                column("Value", name="Banks", width=80),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "model", "availability", "Value"),
            sort_by="Banks",
            no_value="All banks have spare rows",
            width=12,
        ),
        table(
            "RAS errors by block (AMD)",
            "RAS errors since the driver was loaded. Deferred errors become uncorrected when the data is "
            "used: act on both. A few corrected errors are harmless.",
            rows(f"topk(50, {_of('ras_errors_total', more='block, type')} > 0) {_WITH_MODEL}"),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                _MODEL_COLUMN,
                column("block", name="Block", width=80),
                column(
                    "type",
                    name="Type",
                    width=130,
                    mappings=fields.ERROR_TYPES,
                ),
                column("Value", name="Errors", width=80),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "model", "block", "type", "Value"),
            sort_by="Errors",
            no_value="No errors",
            width=12,
        ),
    ),
    row(
        "Temperature and power",
        timed(
            timeseries(
                "Throttled GPUs",
                "Number of throttled GPUs by reason. Heat on many nodes at once points to the cooling of "
                "the room, a power brake on all GPUs of a node to its power supply.",
                *(
                    over_time(_count(_throttled(reason)), name)
                    for reason, name in (
                        ("hw_thermal_slowdown", "thermal (hardware)"),
                        ("sw_thermal_slowdown", "thermal (driver)"),
                        ("hw_power_brake_slowdown", "power brake"),
                    )
                ),
                unit="short",
                width=8,
                legend="bottom",
                calcs=("max",),
                overrides=fields.colors_of(
                    {
                        "thermal (hardware)": palette.CRITICAL,
                        "thermal (driver)": palette.IDLE,
                        "power brake": palette.BUSY,
                    }
                ),
            ),
            step="5m",
        ),
        table(
            "Thermal margin",
            f"Degrees until a GPU slows down, smallest first. Below {_SET['temperature_margin_celsius']}, "
            "check the cooling; above 15 is normal.",
            rows(f"sort(bottomk(20, {_MARGIN}))"),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                column(
                    "Value",
                    name="Degrees left",
                    unit="none",
                    decimals=0,
                    steps=fields.thresholds(
                        (float(_SET["temperature_margin_celsius"]), palette.WARNING),
                        (15, palette.GOOD),
                        base=palette.CRITICAL,
                    ),
                    bar_up_to=50,
                ),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "Value"),
            width=8,
        ),
        table(
            "Longest throttled",
            "Time in the range during which the hardware throttled a GPU. Normal is empty; long times are "
            "lost performance.",
            rows(
                "topk(50, "
                + _of(
                    "throttle_active",
                    'reason=~"hw_thermal_slowdown|hw_power_brake_slowdown"',
                    more="reason",
                    over="avg_over_time",
                    within="$__range",
                )
                # Times the recorded minutes: the range can be longer than the data.
                + " * on (cluster, node) group_left () "
                f"(count_over_time(node:gputally_gpus:count{{{MATCH_NODE}}}[$__range]) * 60) > 0)"
            ),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                column(
                    "reason",
                    name="Reason",
                    mappings=fields.value_texts(
                        {
                            "hw_thermal_slowdown": ("heat", palette.CRITICAL),
                            "hw_power_brake_slowdown": ("power", palette.BUSY),
                        }
                    ),
                ),
                column("Value", name="Duration", unit="s", decimals=0, width=90),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "reason", "Value"),
            sort_by="Duration",
            no_value="No throttling",
            width=8,
        ),
    ),
    row(
        "Links",
        table(
            "GPUs with links down",
            f"GPUs with fewer NVLink or XGMI links than within the last {_SET['link_window']}. Normal is "
            "empty. Drain the node and reset its GPUs.",
            rows(f"topk(50, max by (cluster, node, gpu, model) ({_LINKS_LOST} > 0))"),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                _MODEL_COLUMN,
                column("Value", name="Links", width=70, steps=fields.ANY_IS_WARNING),
            ),
            hidden=("cluster",),
            order=("node", "gpu", "model", "Value"),
            sort_by="Links",
            no_value="All links are up",
            width=8,
        ),
        table(
            "NVLink errors",
            f"Present errors per second. Fewer than {_SET['nvlink_crc_per_second']} CRC errors per second "
            "are corrected and harmless; any other type means a failing link.",
            rows(
                "topk(50, sum by (cluster, node, gpu, type) "
                f"(rate(gputally_gpu_nvlink_errors_total{{{MATCH_NODE}}}[$__rate_interval])) > 0)"
            ),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                column("type", name="Type"),
                column("Value", name="Per second", decimals=2, width=100),
            ),
            hidden=("cluster",),
            order=("node", "gpu", "type", "Value"),
            sort_by="Per second",
            no_value="No errors",
            width=8,
        ),
        table(
            "PCIe problems",
            f"Busy GPUs whose PCIe link ran below its best of {_SET['pcie_window']} for 15 minutes, and "
            f"GPUs with replays. More than {_GENERATION_3_REPLAYS} per minute mean a bad contact; faster "
            "links may have more.",
            rows(f"topk(50, {_PCIE_SPEED})"),
            rows(f"topk(50, {_of('pcie_replays_total', over='rate', within='$__rate_interval')} * 60 > 0)"),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                column(
                    "Value #A",
                    name="Speed",
                    width=70,
                    unit="percentunit",
                    decimals=0,
                    steps=_SLOW,
                ),
                column(
                    "Value #B",
                    name="Replays/min",
                    decimals=1,
                    steps=fields.thresholds((_GENERATION_3_REPLAYS, palette.WARNING), base=palette.CLEAR),
                ),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "Value #A", "Value #B"),
            sort_by="Replays/min",
            no_value="No PCIe problems",
            width=8,
        ),
    ),
    row(
        "Suspected hangs and XID history",
        table(
            "Hang suspects",
            f"Busy for at least {float(_SET['hang_utilization_ratio']):.0%} of the time at less than "
            f"{_SET['hang_power_factor']} times the power while idle, without moving memory, with the owner. "
            "Check with the owner whether the job still makes progress.",
            rows(
                f"topk(50, {_HOLDERS} * 0 + on (cluster, node, uuid) group_left () ({_STALLED})"
                f" or on (cluster, node, uuid) ({_STALLED}))"
            ),
            columns=(
                _NODE_COLUMN,
                _GPU_COLUMN,
                column("namespace", name="Namespace", width=110),
                column("pod", name="Pod", link=links.TO_POD),
                column("owner", name="Owner"),
                column("Value", name="Power / idle", decimals=1, width=130),
            ),
            hidden=("cluster", "uuid"),
            order=("node", "gpu", "namespace", "pod", "owner", "Value"),
            no_value="No suspected hangs",
            width=12,
        ),
        timed(
            timeseries(
                "Suspected hangs over time",
                "Number of GPUs with full utilisation and almost no power draw. Short peaks are loading "
                "and compiling; a constant level is a hung job.",
                over_time(_count(_STALLED), "suspected hangs"),
                unit="short",
                width=12,
                legend="hidden",
                overrides=fields.colors_of({"suspected hangs": palette.WARNING}),
            ),
            step="5m",
        ),
        bar_gauge(
            "GPUs by age of last XID",
            "GPUs by the time since their last XID, without codes that applications cause. Act on recent "
            "ones first.",
            *(
                now(_count(_xid_age_between(least, most)), name)
                for name, least, most in (
                    ("under an hour", 0, _HOUR),
                    ("under a day", _HOUR, _DAY),
                    ("under a week", _DAY, 7 * _DAY),
                    ("older", 7 * _DAY, None),
                )
            ),
            unit="short",
            width=8,
        ),
        table(
            "XIDs by code",
            "Number of GPUs and errors of each code since the exporters started, and the last occurrence. "
            "Many errors on one GPU point to that GPU, one code on many GPUs to a driver or an "
            "application.",
            rows(
                _copy_label(
                    f"count by (xid) ({_of('xid_code_errors', more='xid')})", "xid", "meaning", "cause"
                )
            ),
            rows(f"sum by (xid) ({_of('xid_code_errors', more='xid')})"),
            rows(f"max by (xid) ({_of('xid_last_timestamp_seconds', more='xid')}) * 1000"),
            columns=(
                *_XID_COLUMNS[:-1],
                column("Value #A", name="GPUs", width=65),
                column("Value #B", name="Errors", width=75),
                column("Value #C", name="Last", unit="dateTimeFromNow"),
            ),
            order=("xid", "meaning", "cause", "Value #A", "Value #B", "Value #C"),
            sort_by="Last",
            no_value="No XID errors",
            width=16,
        ),
    ),
    variables=(CLUSTER, NODE),
    since="now-24h",
)
