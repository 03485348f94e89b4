"""The exporters themselves: availability, sources, duration, errors and resource use."""

from alerts.filling import defaults
from dashboards import Json, fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, now, over_time, rows, stat, timeseries
from dashboards.queries import MATCH_CLUSTER
from dashboards.tables import column, table, value_columns
from dashboards.variables import CLUSTER, Variable

_JOB = f'{MATCH_CLUSTER}, job=~"$job"'
_NODE = f'{_JOB}, node=~"$node"'
_VARIABLES = (
    CLUSTER,
    # One job only: with All, `up` would include every target of Prometheus.
    Variable("job", "Job", f"gputally_exporter_info{{{MATCH_CLUSTER}}}", multi=False),
    Variable("node", "Node", f"gputally_exporter_info{{{_JOB}}}"),
)
_SET = defaults()
_BY_NODE = "cluster, node"
_STATE_FILE = 'source="state_file"'
_OLD = fields.thresholds((60, palette.WARNING), (float(_SET["snapshot_stale_seconds"]), palette.CRITICAL))
_SLOW = fields.thresholds((1, palette.WARNING), (float(_SET["scrape_slow_seconds"]), palette.CRITICAL))
_MANY = fields.thresholds((float(_SET["samples_max"]), palette.WARNING))
_NODE_COLUMN = column("node", name="Node", link=links.TO_NODE)
_AGE = f"time() - max by ({_BY_NODE}) (gputally_snapshot_timestamp_seconds{{{_NODE}}})"


def _cell_colours(steps: Json) -> Json:
    """The thresholds for table cells: values below the first step have no colour."""
    return {**steps, "steps": [{"color": palette.CLEAR, "value": None}, *steps["steps"][1:]]}


def _of(metric: str, *matchers: str, by: str = _BY_NODE, how: str = "max") -> str:
    return f"{how} by ({by}) ({metric}{{{', '.join((_NODE, *matchers))}}})"


def _rate(metric: str) -> str:
    return f"max by ({_BY_NODE}) (rate({metric}{{{_NODE}}}[$__rate_interval]))"


def _increase(metric: str, by: str, *matchers: str, within: str = "$__range") -> str:
    return f"sum by ({by}) (increase({metric}{{{', '.join((_NODE, *matchers))}}}[{within}]))"


def _failing(by: str) -> str:
    """Number of failing sources; 0 where none fails."""
    up = _of("gputally_source_up", by="cluster, node, source")
    return f"count by ({by}) ({up}) - sum by ({by}) ({up})"


def _across_nodes(title: str, description: str, per_node: str, unit: str) -> Panel:
    """A graph of maximum and median over all nodes: two lines for any number of nodes."""
    return timeseries(
        title,
        description,
        over_time(f"max({per_node})", "maximum"),
        over_time(f"quantile(0.5, {per_node})", "median"),
        unit=unit,
        width=8,
        legend="bottom",
        calcs=("mean", "max"),
    )


DASHBOARD = dashboard(
    "exporter",
    "Exporter",
    "The exporters themselves: availability, sources, duration, errors and resource use.",
    row(
        "",
        stat(
            "Exporters",
            "Exporters that Prometheus can scrape, and exporters that are down. Normal is 0 down. Metrics "
            "of their nodes are missing.",
            now(f"sum({_of('up')})", "up"),
            now(f"count({_of('up')} == 0) or vector(0)", "down"),
            unit="short",
            width=4,
            overrides=(
                fields.override("down", thresholds=fields.ANY_IS_CRITICAL),
                fields.override("up", thresholds=fields.thresholds(base=palette.GOOD)),
            ),
        ),
        stat(
            "Sources down",
            "Device and pod sources that fail now. Normal is 0; otherwise the metrics of these sources are "
            "missing.",
            now(f"count({_of('gputally_source_up', by='cluster, node, source')} == 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_WARNING,
            background=True,
        ),
        stat(
            "Oldest data",
            "Longest time since the last sample of an exporter. Above one minute, check that exporter.",
            now(f"max({_AGE})"),
            unit="s",
            width=4,
            decimals=0,
            steps=_OLD,
        ),
        stat(
            "Slowest source",
            "Longest duration of a source in the last sample. Milliseconds are normal; seconds mean a slow "
            "driver or API server.",
            over_time(f"max({_of('gputally_source_duration_seconds')})"),
            unit="s",
            width=4,
            steps=_SLOW,
        ),
        stat(
            "Slowest scrape",
            "Longest duration of a scrape. Below one second is normal; at the scrape timeout the metrics "
            "of the node are lost.",
            over_time(f"max({_of('scrape_duration_seconds')})"),
            unit="s",
            width=4,
            steps=_SLOW,
        ),
        stat(
            "Samples",
            "Samples in one scrape of all exporters. It grows with GPUs and pods; check an unexpected jump.",
            over_time(f"sum({_of('scrape_samples_scraped')})"),
            unit="short",
            width=4,
        ),
        table(
            "Exporters by node",
            "State of each exporter, oldest data first. Check exporters with coloured cells.",
            rows(f"topk(500, {_AGE})"),
            rows(_failing(_BY_NODE)),
            rows(_of("gputally_source_duration_seconds", by="cluster, node", how="sum")),
            rows(_of("scrape_duration_seconds")),
            rows(_of("scrape_samples_scraped")),
            rows(_of("process_resident_memory_bytes")),
            rows(_rate("process_cpu_seconds_total")),
            columns=(
                _NODE_COLUMN,
                column(
                    "Value #A", name="Data age", unit="s", decimals=0, width=105, steps=_cell_colours(_OLD)
                ),
                column(
                    "Value #B", name="Failing sources", width=125, steps=_cell_colours(fields.ANY_IS_WARNING)
                ),
                column("Value #C", name="Sample time", unit="s", width=125, steps=_cell_colours(_SLOW)),
                column("Value #D", name="Scrape time", unit="s", width=125, steps=_cell_colours(_SLOW)),
                column("Value #E", name="Samples", unit="none", width=90, steps=_cell_colours(_MANY)),
                column("Value #F", name="Memory", unit="bytes", decimals=0, width=90),
                column("Value #G", name="CPU", unit="percentunit", decimals=1, width=70),
            ),
            hidden=("cluster",),
            order=("node", *value_columns(7)),
            sort_by="Data age",
            width=24,
            height=8,
        ),
        table(
            "Sources",
            "State of each source over all nodes. A failure on one node is a problem of that node; a "
            "failure on all nodes is a permission or a setting.",
            rows(f"sum by (source) ({_of('gputally_source_up', by='cluster, node, source')})"),
            rows(_failing("source")),
            rows(_of("gputally_source_duration_seconds", by="source")),
            rows(_increase("gputally_source_failures_total", "source")),
            rows(_increase("gputally_source_overruns_total", "source")),
            columns=(
                column("source", name="Source"),
                column("Value #A", name="Up", width=85),
                column("Value #B", name="Down", width=70, steps=_cell_colours(fields.ANY_IS_WARNING)),
                column(
                    "Value #C", name="Slowest", unit="s", decimals=1, width=95, steps=_cell_colours(_SLOW)
                ),
                column("Value #D", name="Failures", decimals=0, width=85),
                column("Value #E", name="Too slow", decimals=0, width=85),
            ),
            order=("source", *value_columns(5)),
            sort_by="Down",
            width=12,
            height=9,
        ),
        timeseries(
            "Source duration",
            "Duration of each source on its slowest node. A sudden increase means a slow driver or API "
            "server, or more processes.",
            over_time(_of("gputally_source_duration_seconds", by="source"), "{{source}}"),
            unit="s",
            width=12,
            height=9,
            legend="bottom",
        ),
    ),
    row(
        "Errors",
        table(
            "Failing sources",
            "Sources that fail now, and the time since they last succeeded. Normal is empty. The log of "
            "the exporter has the reason and the fix.",
            rows(
                "topk(100, (time() - "
                + _of("gputally_source_last_success_timestamp_seconds", by="cluster, node, source")
                + ") and on (cluster, node, source) "
                + _of("gputally_source_up", by="cluster, node, source")
                + " == 0)"
            ),
            columns=(
                _NODE_COLUMN,
                column("source", name="Source"),
                column("Value", name="Failing for", unit="s", decimals=0, width=120),
            ),
            hidden=("cluster",),
            order=("node", "source", "Value"),
            sort_by="Failing for",
            no_value="No failing sources",
            width=8,
        ),
        table(
            "Read errors",
            "Values that could not be read or were dropped as implausible since the exporter started. A few "
            "are normal; one field on all nodes is not supported by the driver.",
            rows(f"topk(100, {_of('gputally_source_field_errors', by='node, source, field, error')} > 0)"),
            columns=(
                _NODE_COLUMN,
                column("source", name="Source"),
                column("field", name="Field"),
                column("error", name="Error"),
                column("Value", name="Count", decimals=0, width=80),
            ),
            order=("node", "source", "field", "error", "Value"),
            sort_by="Count",
            no_value="No read errors",
            width=10,
        ),
        timeseries(
            "Source failures",
            "Samples of whole sources that failed or took too long, all nodes together. Normal is 0; while "
            "a source is too slow, its values are old.",
            over_time(
                f"sum({_increase('gputally_source_failures_total', 'source', within='$__rate_interval')})",
                "failures",
            ),
            over_time(
                f"sum({_increase('gputally_source_overruns_total', 'source', within='$__rate_interval')})",
                "too slow",
            ),
            unit="short",
            width=6,
            bars=True,
            legend="bottom",
            calcs=("max",),
            overrides=fields.colors_of({"failures": palette.CRITICAL, "too slow": palette.WARNING}),
        ),
    ),
    row(
        "Resource use",
        _across_nodes(
            "Scrape duration",
            "Time that Prometheus waits for an exporter. Milliseconds are normal, because a scrape returns "
            "the last sample.",
            _of("scrape_duration_seconds"),
            "s",
        ),
        _across_nodes(
            "Memory",
            "Resident memory of an exporter. A constant level is normal; a line that only grows is a "
            "memory leak.",
            _of("process_resident_memory_bytes"),
            "bytes",
        ),
        _across_nodes(
            "CPU",
            "Share of one core that an exporter uses. A few percent are normal; a longer --interval "
            "reduces it.",
            _rate("process_cpu_seconds_total"),
            "percentunit",
        ),
        _across_nodes(
            "Samples per scrape",
            "Samples of one exporter. Short-lived pods and --process-metrics increase them; "
            f"{int(_SET['samples_max']):,} are too many.",
            _of("scrape_samples_scraped"),
            "short",
        ),
        _across_nodes(
            "Open files",
            "Open file descriptors of an exporter. A constant level is normal; a line that only grows is a "
            "leak.",
            _of("process_open_fds"),
            "short",
        ),
        timeseries(
            "New series",
            "Series that were not in the previous scrape, all exporters together. Peaks are new pods; a "
            "constantly high level is a cost for Prometheus.",
            over_time(f"sum({_of('scrape_series_added')})", "new series"),
            unit="short",
            width=8,
            legend="hidden",
        ),
        table(
            "Samples by node",
            "Exporters with the most samples per scrape. Check pods and processes of the nodes at the top.",
            rows(f"topk(20, {_of('scrape_samples_scraped')})"),
            rows(f"count by ({_BY_NODE}) (gputally_pod_active{{{_NODE}}})"),
            rows(f"count by ({_BY_NODE}) (gputally_process_active{{{_NODE}}}) or {_of('up')} * 0"),
            columns=(
                _NODE_COLUMN,
                column("Value #A", name="Samples", unit="none", steps=_cell_colours(_MANY)),
                column("Value #B", name="Pods on GPUs", decimals=0),
                column("Value #C", name="Processes", decimals=0),
            ),
            hidden=("cluster",),
            order=("node", "Value #A", "Value #B", "Value #C"),
            sort_by="Samples",
            width=24,
            height=7,
        ),
    ),
    row(
        "Ledger and versions",
        stat(
            "Unsaved ledgers",
            "Exporters that cannot write their state file. Normal is 0; otherwise energy and GPU time "
            "start again at 0 after a restart.",
            now(f"count({_of('gputally_source_up', _STATE_FILE)} == 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
        ),
        stat(
            "No state file",
            "Exporters without --state-file. Their ledger starts again after each restart. Normal is 0 "
            "where bills are made.",
            now(
                f"count({_of('gputally_exporter_info')} unless on ({_BY_NODE})"
                f" {_of('gputally_source_up', _STATE_FILE)}) or vector(0)"
            ),
            unit="short",
            width=4,
            steps=fields.ANY_IS_WARNING,
        ),
        stat(
            "Newest ledger",
            "Time since the newest ledger of a GPU was started. If it is short and no GPU was added, a "
            "state file was lost.",
            now(f"time() - max({_of('gputally_gpu_ledger_start_timestamp_seconds')})"),
            unit="dtdurations",
            width=4,
        ),
        stat(
            "Restarts",
            "Restarts of exporters in the time range. One each during a rollout is normal; more mean "
            "crashes or too little memory.",
            now(f"sum(changes(process_start_time_seconds{{{_NODE}}}[$__range]))"),
            unit="short",
            width=4,
        ),
        _across_nodes(
            "Ledger write duration",
            "Time to write the state file; each sample is saved before it is served. Milliseconds are "
            "normal; seconds mean a slow disk.",
            _of("gputally_source_duration_seconds", _STATE_FILE),
            "s",
        ),
        table(
            "Versions",
            "Versions in use. After an upgrade there should be one line.",
            rows(f"count by (version, python) ({_of('gputally_exporter_info', by='version, python, node')})"),
            columns=(
                column("version", name="GPUTally"),
                column("python", name="Python"),
                column("Value", name="Exporters"),
            ),
            order=("version", "python", "Value"),
            sort_by="Exporters",
            width=16,
            height=4,
        ),
    ),
    variables=_VARIABLES,
    annotate=False,
)
