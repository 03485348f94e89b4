"""The chart's own Prometheus, Alertmanager and Grafana, which watch each other.

Only the chart's Prometheus loads these rules: they select the jobs of its configuration, and an installation
of kube-prometheus-stack has such rules already.
"""

from alerts.model import Alert, Group, RecordingRule, Severity

GROUP = Group(
    "gputally-stack",
    (
        # As size retention counts it.
        RecordingRule(
            "cluster:prometheus_storage:bytes",
            """
            sum by (cluster) (
              {
                __name__=~"prometheus_tsdb_(storage_blocks|wal_storage_size|head_chunks_storage_size)_bytes",
                job="prometheus"
              }
            )
            """,
        ),
        # Not vector(1): it ends when Prometheus can no longer store what it scrapes, as on a full volume.
        Alert(
            "GPUTallyWatchdog",
            'max by (cluster) (up{job="prometheus"}) == 1',
            Severity.NONE,
            summary="Alerting works.",
            description=(
                "This alert always fires: it shows that scrapes, storage, rules, Alertmanager and the way "
                "to the receiver work. The service that receives it must raise an alarm when it is no "
                "longer repeated."
            ),
        ),
        Alert(
            "GPUTallyStackRulesFailing",
            """
              sum by (cluster, rule_group) (
                increase(prometheus_rule_evaluation_failures_total{job="prometheus"}[5m])
              )
            > 0
            """,
            Severity.CRITICAL,
            summary="Prometheus cannot evaluate rules of {{ $labels.rule_group }}.",
            description=(
                '{{ printf "%.0f" $value }} evaluations of rules in {{ $labels.rule_group }} failed in 5 '
                "minutes. Alerts among them cannot fire, and records have gaps. Prometheus's page Status, "
                "Rule health shows the rule and the error."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyStackAlertsNotDelivered",
            """
              sum by (cluster) (increase(prometheus_notifications_dropped_total{job="prometheus"}[5m]))
            > 0
            """,
            Severity.CRITICAL,
            summary="Prometheus cannot deliver alerts to Alertmanager.",
            description=(
                'Prometheus has dropped {{ printf "%.0f" $value }} alerts in 5 minutes because an '
                "Alertmanager did not accept them. If it is the only one, no message about any fault is "
                "sent. Check that Alertmanager runs and can be reached."
            ),
            for_="5m",
        ),
        # Requests, because a notification that is retried counts as failed only after its group interval.
        Alert(
            "GPUTallyStackNotificationsFailing",
            """
                sum by (cluster, integration) (
                  increase(alertmanager_notification_requests_failed_total{job="alertmanager"}[15m])
                )
              /
                sum by (cluster, integration) (
                  increase(alertmanager_notification_requests_total{job="alertmanager"}[15m])
                )
            > 0.5
            """,
            Severity.CRITICAL,
            summary="Alertmanager cannot send messages by {{ $labels.integration }}.",
            description=(
                "{{ $value | humanizePercentage }} of Alertmanager's requests to {{ $labels.integration }} "
                "in 15 minutes failed. The people whom it notifies do not learn of faults. The log of "
                "Alertmanager shows the error: an expired key, a changed URL or a network policy."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyStackReloadFailing",
            """
              min by (cluster, job) (
                {
                  __name__=~"(prometheus|alertmanager)_config_last_reload_successful",
                  job=~"prometheus|alertmanager"
                }
              )
            == 0
            """,
            Severity.WARNING,
            summary="The newest settings of {{ $labels.job }} are not loaded.",
            description=(
                "{{ $labels.job }} has rejected its configuration or its rules for 10 minutes and runs "
                "with the previous ones. Changes have no effect, and after a restart it does not start. "
                "Its log shows the line with the error."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyStackVolumeNearlyFull",
            """
              cluster:prometheus_storage:bytes
            / on (cluster)
              max by (cluster) (prometheus_tsdb_retention_limit_bytes{job="prometheus"} > 0)
            > [[ volume_full_ratio ]]
            """,
            Severity.CRITICAL,
            summary="Prometheus's volume is nearly full.",
            description=(
                "Prometheus stores {{ $value | humanizePercentage }} of its retention size, although it "
                "deletes the oldest data at 100 %. On a full volume it stores nothing more, and no alert "
                "can fire. Enlarge the volume, or reduce retentionSize."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyStackRetentionShort",
            """
              (
                    max by (cluster) (prometheus_tsdb_retention_limit_seconds{job="prometheus"} > 0)
                  - on (cluster)
                    max by (cluster) (time() - prometheus_tsdb_lowest_timestamp_seconds{job="prometheus"})
                > [[ retention_horizon_hours ]] * 3600
              )
            and on (cluster)
              (
                    predict_linear(cluster:prometheus_storage:bytes[1d], [[ retention_horizon_hours ]] * 3600)
                  > on (cluster)
                    max by (cluster) (prometheus_tsdb_retention_limit_bytes{job="prometheus"} > 0)
                and on (cluster)
                      cluster:prometheus_storage:bytes
                    > on (cluster)
                      max by (cluster) (prometheus_tsdb_retention_limit_bytes{job="prometheus"}) / 2
                or on (cluster)
                    sum by (cluster) (increase(prometheus_tsdb_size_retentions_total{job="prometheus"}[1d]))
                  > 0
              )
            """,
            Severity.WARNING,
            summary="Prometheus's volume is too small for its retention time.",
            description=(
                "Prometheus's data reaches the limit of its volume within [[ retention_horizon_hours ]] "
                "hours, or has reached it: {{ $value | humanizeDuration }} before the retention time. The "
                "oldest data, and with it bills of the past, is deleted early. Enlarge the volume, or "
                "shorten the retention."
            ),
            for_="1h",
        ),
        Alert(
            "GPUTallyStackStorageFailing",
            """
              (
                  sum by (cluster) (increase(prometheus_tsdb_compactions_failed_total{job="prometheus"}[3h]))
                + on (cluster)
                  sum by (cluster) (increase(prometheus_tsdb_wal_writes_failed_total{job="prometheus"}[3h]))
              )
            > 0
            """,
            Severity.CRITICAL,
            summary="Prometheus cannot write its data.",
            description=(
                '{{ printf "%.0f" $value }} writes of Prometheus to its volume failed in 3 hours. The '
                "volume is full or damaged, and data since then may be lost. Read Prometheus's log, and "
                "check the volume."
            ),
            for_="5m",
        ),
        Alert(
            "GPUTallyStackTargetDown",
            'count by (cluster, job) (up{job!~"[[ job ]]|[[ job ]]-sidecars|grafana"} == 0) > 0',
            Severity.WARNING,
            summary="Prometheus cannot scrape {{ $labels.job }}.",
            description=(
                "{{ $value }} target(s) of job {{ $labels.job }} have not responded to a scrape for 10 "
                "minutes. Panels and alerts about them have no data; while Alertmanager is down, no "
                "message is sent. Check that its pod runs and that a network policy admits Prometheus."
            ),
            for_="10m",
        ),
        # prometheus_sd_kubernetes_failures_total does not count refused connections.
        Alert(
            "GPUTallyStackDiscoveryFailing",
            """
              sum by (cluster) (
                increase(prometheus_sd_kubernetes_http_request_total{job="prometheus",status_code!~"2.."}[5m])
              )
            > 0
            """,
            Severity.WARNING,
            summary="Prometheus cannot list the pods of exporters.",
            description=(
                '{{ printf "%.0f" $value }} requests of Prometheus to the Kubernetes API failed in 5 '
                "minutes. Exporters on new nodes are not found, and replaced ones are lost. Check the Role "
                "of Prometheus's service account and its way to the API server."
            ),
            for_="15m",
        ),
        Alert(
            "GPUTallyStackGrafanaDown",
            'max by (cluster) (up{job="grafana"}) == 0',
            Severity.WARNING,
            summary="Grafana is down.",
            description=(
                "Prometheus has not been able to scrape Grafana for 10 minutes. Dashboards cannot be "
                "opened; alerts are not affected. Check the pod of Grafana and its volume."
            ),
            for_="10m",
        ),
        Alert(
            "GPUTallyStackRemoteWriteFailing",
            """
                time()
              - max by (cluster, remote_name, url) (
                  prometheus_remote_storage_queue_highest_sent_timestamp_seconds{job="prometheus"}
                )
            > [[ remote_write_delay_seconds ]]
            """,
            Severity.WARNING,
            summary="Remote write to {{ $labels.url }} fails.",
            description=(
                "The newest sample that {{ $labels.url }} accepted is {{ $value | humanizeDuration }} old "
                "(or, if that is decades, it has accepted none since Prometheus started). What is not sent "
                "within about two hours is lost there. Prometheus's log shows the error of the server."
            ),
            for_="5m",
        ),
    ),
    interval="1m",
    stack=True,
)
