"""Does the exporter itself do its work: sources, books, scrapes."""

from alerts.groups.phrases import ANSWERS, GPU, WHERE, of_node, with_card
from alerts.model import Alert, Group, Severity

_CHARGED = '{__name__=~"gputally_(pod|host|gpu_unattributed)_energy_joules_total"}'
_BOOK = "cluster, node, instance, gpu"
"""By gpu, not by uuid: what MIG devices are charged has their own uuid and their parent's index."""
_RESTARTS = 'changes(process_start_time_seconds{job="[[ job ]]"}[1h])'
_UNOBSERVED = 'gputally_gpu_unattributed_energy_joules_total{reason="unobserved"}'

GROUP = Group(
    "gputally-exporter",
    (
        Alert(
            "GPUTallySourceFailing",
            # Where no GPU can be read at all, GPUTallyDriverUnavailable says so, or there are none.
            of_node('gputally_source_up{source!~"state_file|[[ optional_sources ]]"}', "source")
            + f" == 0 and on (cluster, node) {ANSWERS} == 1",
            Severity.WARNING,
            summary="A source of the exporter fails.",
            description="On node {{ $labels.node }} the source {{ $labels.source }} has not answered for 15 "
            "minutes. What only it knows is missing; the exporter's log has the reason and what to do.",
            for_="15m",
        ),
        Alert(
            "GPUTallyReadErrors",
            "sum by (cluster, node, source) (increase(gputally_source_errors_total[15m])) > [[ value_errors "
            "]] unless on (cluster, node) (gputally_gpu_up == 0)",
            Severity.WARNING,
            summary="Single values cannot be read, time and again.",
            description='On node {{ $labels.node }} {{ printf "%.0f" $value }} values from '
            "{{ $labels.source }} failed or made no sense in 15 minutes. Which, and why: the labels field "
            "and error of gputally_source_errors_total.",
            for_="30m",
        ),
        Alert(
            "GPUTallySourceSlow",
            "sum by (cluster, node, source) (increase(gputally_source_overruns_total[15m])) > [[ "
            "source_overruns ]] and on (cluster, node, source) "
            + of_node("max_over_time(gputally_source_up[15m])", "source")
            + " == 1",
            Severity.WARNING,
            summary="A source of the exporter is often too slow.",
            description="On node {{ $labels.node }} {{ $labels.source }} was too slow "
            '{{ printf "%.0f" $value }} '
            "times in 15 minutes, and values were old. A driver that stalls often fails next: look into the "
            "kernel's log.",
            for_="5m",
        ),
        Alert(
            "GPUTallyCheckpointFailing",
            of_node('gputally_source_up{source="state_file"}') + " == 0",
            Severity.WARNING,
            summary="The exporter cannot save its books.",
            description="On node {{ $labels.node }} the state file could not be written for 10 minutes. When "
            "the exporter is restarted now, energy and GPU-seconds begin anew. Look at the disk and its "
            "permissions.",
            for_="10m",
        ),
        Alert(
            "GPUTallyLedgerError",
            "max by (cluster, node, gpu) (abs("
            f"sum by ({_BOOK}) (gputally_gpu_energy_joules_total) - sum by ({_BOOK}) ({_CHARGED})"
            ")) > [[ ledger_tolerance_joules ]]",
            Severity.WARNING,
            summary="The energy of a GPU and what was charged for it differ.",
            description="On node {{ $labels.node }} the charges for GPU {{ $labels.gpu }} are "
            '{{ printf "%.1f" $value }} J off its meter. Either series are lost on the way to Prometheus, or '
            "this is a bug of GPUTally: bills are wrong until it is found.",
            for_="10m",
        ),
        Alert(
            "GPUTallyScrapeSlow",
            of_node('avg_over_time(scrape_duration_seconds{job="[[ job ]]"}[10m])')
            + " > [[ scrape_slow_seconds ]]",
            Severity.WARNING,
            summary="Scrapes of an exporter are slow.",
            description="A scrape of node {{ $labels.node }} takes {{ $value | humanizeDuration }}; a "
            "healthy exporter answers within milliseconds. It lacks CPU, or the network is slow: scrapes are "
            "about to time out.",
            for_="15m",
        ),
        Alert(
            "GPUTallyTooManySamples",
            of_node('scrape_samples_scraped{job="[[ job ]]"}') + " > [[ samples_max ]]",
            Severity.WARNING,
            summary="An exporter has very many series.",
            description="A scrape of node {{ $labels.node }} has {{ $value | humanize }} samples. "
            "Per-process metrics or many short pods are the usual reason: turn --process-metrics off, or "
            "shorten --retention.",
            for_="30m",
        ),
        Alert(
            "GPUTallyExporterRestarting",
            f"sum by (cluster, node) ({_RESTARTS}) > [[ restarts_per_hour ]]",
            Severity.WARNING,
            summary="An exporter is restarted again and again.",
            description="The exporter of node {{ $labels.node }} was restarted {{ $value }} times in an "
            "hour. What happened meanwhile is not charged to anybody. See why it ends: kubectl describe pod, "
            "and the log of the container before.",
        ),
        Alert(
            "GPUTallyEnergyUnobserved",
            with_card(
                f"sum by ({GPU}) (increase({_UNOBSERVED}[1h])) "
                f"/ sum by ({GPU}) (increase(gputally_gpu_energy_joules_total[1h])) > [[ unobserved_ratio ]] "
                f"unless on (cluster, node) ({_RESTARTS} > 0) "
                "unless on (cluster, node, uuid) (min_over_time(gputally_gpu_up[1h]) == 0)"
            ),
            Severity.WARNING,
            summary="Much of a GPU's energy was used while the exporter did not look.",
            description=f"{WHERE}: {{{{ $value | humanizePercentage }}}} of the energy of the last hour is "
            "charged to nobody, because the exporter did not look for a minute or longer. It stalls: look "
            "for a driver that hangs, or for too little CPU.",
            for_="15m",
        ),
    ),
)
