"""The exporter itself: its sources, its ledger and its scrapes."""

from alerts.model import Alert, Group, Severity

GROUP = Group(
    "gputally-exporter",
    (
        # If no GPU can be read at all, GPUTallyDriverUnavailable fires instead.
        Alert(
            "GPUTallySourceFailing",
            """
              max by (cluster, node, source) (
                gputally_source_up{source!~"state_file|[[ optional_sources ]]"}
              ) == 0
            and on (cluster, node)
              max by (cluster, node) (
                gputally_source_up{source=~"[[ device_sources ]]"}
              ) == 1
            """,
            Severity.WARNING,
            summary="Source {{ $labels.source }} on {{ $labels.node }} is failing.",
            description=(
                "The source {{ $labels.source }} on node {{ $labels.node }} has been failing for 15 minutes. "
                "The data that only this source provides is missing. Read the exporter's log for the reason "
                "and the fix."
            ),
            for_="15m",
        ),
        Alert(
            "GPUTallyReadErrors",
            """
                sum by (cluster, node, source) (increase(gputally_source_errors_total[15m]))
              > [[ value_errors ]]
            unless on (cluster, node)
              (gputally_gpu_up == 0)
            """,
            Severity.WARNING,
            summary="Source {{ $labels.source }} on {{ $labels.node }} has many read errors.",
            description=(
                'On node {{ $labels.node }}, {{ printf "%.0f" $value }} values from source '
                "{{ $labels.source }} failed or were implausible in 15 minutes. These samples are missing. "
                "The labels field and error of gputally_source_field_errors show which values, and why."
            ),
            for_="30m",
        ),
        Alert(
            "GPUTallySourceSlow",
            """
                sum by (cluster, node, source) (increase(gputally_source_overruns_total[15m]))
              > [[ source_overruns ]]
            and on (cluster, node, source)
              max by (cluster, node, source) (max_over_time(gputally_source_up[15m])) == 1
            """,
            Severity.WARNING,
            summary="Source {{ $labels.source }} on {{ $labels.node }} is often too slow.",
            description=(
                "On node {{ $labels.node }}, source {{ $labels.source }} was too slow "
                '{{ printf "%.0f" $value }} times in 15 minutes, and its values were stale. A driver that '
                "stalls often fails next: read the kernel log."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyCheckpointFailing",
            'max by (cluster, node) (gputally_source_up{source="state_file"}) == 0',
            Severity.WARNING,
            summary="Exporter on {{ $labels.node }} cannot save its ledger.",
            description=(
                "The exporter on node {{ $labels.node }} has not been able to write its state file for 10 "
                "minutes. If it restarts now, energy and GPU-seconds start again from zero. Check the disk "
                "and the file's permissions."
            ),
            for_="10m",
        ),
        # By gpu, not by uuid: MIG devices are charged under their own uuid and the index of their parent.
        Alert(
            "GPUTallyLedgerError",
            """
            max by (cluster, node, gpu) (
              abs(
                  sum by (cluster, node, instance, gpu) (gputally_gpu_energy_joules_total)
                -
                  sum by (cluster, node, instance, gpu) (
                    {__name__=~"gputally_(pod|host|gpu_unattributed)_energy_joules_total"}
                  )
              )
            ) > [[ ledger_tolerance_joules ]]
            """,
            Severity.WARNING,
            summary="Ledger of GPU {{ $labels.gpu }} on {{ $labels.node }} differs from its energy counter.",
            description=(
                "The charges for GPU {{ $labels.gpu }} on node {{ $labels.node }} differ from its energy "
                'counter by {{ printf "%.1f" $value }} J. Bills are wrong until the cause is found. Either '
                "series are lost on the way to Prometheus, or GPUTally has a bug: follow the runbook."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyScrapeSlow",
            """
              max by (cluster, node) (avg_over_time(scrape_duration_seconds{job="[[ job ]]"}[10m]))
            > [[ scrape_slow_seconds ]]
            """,
            Severity.WARNING,
            summary="Scrapes of the exporter on {{ $labels.node }} are slow.",
            description=(
                "A scrape of node {{ $labels.node }} takes {{ $value | humanizeDuration }}; a healthy "
                "exporter responds within milliseconds. Scrapes are about to time out. Check the exporter's "
                "CPU limit and the network."
            ),
            for_="15m",
        ),
        Alert(
            "GPUTallyTooManySamples",
            'max by (cluster, node) (scrape_samples_scraped{job="[[ job ]]"}) > [[ samples_max ]]',
            Severity.WARNING,
            summary="Exporter on {{ $labels.node }} exposes too many series.",
            description=(
                "A scrape of node {{ $labels.node }} has {{ $value | humanize }} samples, which costs "
                "Prometheus memory. The usual causes are per-process metrics and many short-lived pods: turn "
                "--process-metrics off, or shorten --retention."
            ),
            for_="30m",
        ),
        Alert(
            "GPUTallyExporterRestarting",
            """
              sum by (cluster, node) (changes(process_start_time_seconds{job="[[ job ]]"}[1h]))
            > [[ restarts_per_hour ]]
            """,
            Severity.WARNING,
            summary="Exporter on {{ $labels.node }} restarts repeatedly.",
            description=(
                "The exporter on node {{ $labels.node }} restarted {{ $value }} times in an hour. Energy "
                "used in between is unattributed. Find the cause with kubectl describe pod and in the log of "
                "the previous container."
            ),
        ),
        Alert(
            "GPUTallyEnergyUnobserved",
            """
              (
                      sum by (cluster, node, gpu, uuid) (
                        increase(gputally_gpu_unattributed_energy_joules_total{reason="unobserved"}[1h])
                      )
                    /
                      sum by (cluster, node, gpu, uuid) (increase(gputally_gpu_energy_joules_total[1h]))
                  > [[ unobserved_ratio ]]
                unless on (cluster, node)
                  (changes(process_start_time_seconds{job="[[ job ]]"}[1h]) > 0)
                unless on (cluster, node, uuid)
                  (min_over_time(gputally_gpu_up[1h]) == 0)
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="Much of the energy of GPU {{ $labels.gpu }} on {{ $labels.node }} was not observed.",
            description=(
                "{{ $value | humanizePercentage }} of the energy of GPU {{ $labels.gpu }} "
                "({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node {{ $labels.node }} in the last hour "
                "is unattributed, because the exporter took no sample for a minute or longer. Bills are too "
                "low by that share. Look for a driver that hangs, or for too little CPU."
            ),
            for_="15m",
        ),
        # Differences of single values: a gap is longer than the window of an increase(), and a day of raw
        # samples is too much to read.
        Alert(
            "GPUTallyLedgerGap",
            """
              (
                    (
                        max by (cluster, node, gpu, uuid) (
                          gputally_gpu_unattributed_energy_joules_total{reason="unobserved"}
                        )
                      -
                        max by (cluster, node, gpu, uuid) (
                          gputally_gpu_unattributed_energy_joules_total{reason="unobserved"} offset 1d
                        )
                    )
                  /
                    (
                        max by (cluster, node, gpu, uuid) (gputally_gpu_energy_joules_total)
                      -
                        max by (cluster, node, gpu, uuid) (gputally_gpu_energy_joules_total offset 1d)
                      > 0
                    )
                > [[ unobserved_day_ratio ]]
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="The ledger of GPU {{ $labels.gpu }} on {{ $labels.node }} has a long gap.",
            description=(
                "{{ $value | humanizePercentage }} of the energy that GPU {{ $labels.gpu }} "
                "({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node {{ $labels.node }} used in the last "
                "24 hours is charged to no one, because the exporter was not running. Find out when and why "
                "it was away, and correct the bills of this day by hand if they matter."
            ),
            for_="15m",
        ),
    ),
)
