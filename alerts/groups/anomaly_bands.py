"""The upper and lower band of each anomaly input; see alerts/groups/anomalies.py."""

from alerts.model import RecordingRule

BANDS: tuple[RecordingRule, ...] = (
    # Days are read in steps of 15 minutes: at 10,000 GPUs every minute would be too many samples.
    RecordingRule(
        "gpu:gputally_anomaly:hourly",
        """
          avg_over_time(gpu:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
        or
          quantile_over_time(0.5, gpu:gputally_anomaly:input{anomaly_strategy="robust"}[1h])
        """,
    ),
    # Half an hour late, so that an anomaly does not shift its own band while its alert is pending.
    RecordingRule(
        "gpu:gputally_anomaly:centre",
        """
          gpu:gputally_anomaly:hourly{anomaly_strategy="adaptive"} offset 30m
        or
          quantile_over_time(0.5, gpu:gputally_anomaly:hourly{anomaly_strategy="robust"}[1d:15m])
        """,
    ),
    RecordingRule(
        "gpu:gputally_anomaly:deviation",
        """
          stddev_over_time(gpu:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
        or
          abs(
              gpu:gputally_anomaly:input{anomaly_strategy="robust"}
            -
              gpu:gputally_anomaly:centre{anomaly_strategy="robust"}
          )
        """,
    ),
    # Without a day of history there is no margin, and therefore no band.
    RecordingRule(
        "gpu:gputally_anomaly:margin",
        """
          (
                  [[ anomaly_deviations ]]
                *
                  (
                      avg_over_time(gpu:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m])
                    or
                      quantile_over_time(
                        0.5,
                        gpu:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                      )
                  )
              >
                (
                      [[ anomaly_margin_ratio ]] * gpu:gputally_anomaly:centre
                    >
                      [[ anomaly_floor_ratio ]] * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                  or
                    [[ anomaly_floor_ratio ]] * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                  or
                    [[ anomaly_margin_ratio ]] * gpu:gputally_anomaly:centre
                )
            or
              (
                    [[ anomaly_margin_ratio ]] * gpu:gputally_anomaly:centre
                  >
                    [[ anomaly_floor_ratio ]] * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                or
                  [[ anomaly_floor_ratio ]] * max_over_time(gpu:gputally_anomaly:hourly[1d:15m])
                or
                  [[ anomaly_margin_ratio ]] * gpu:gputally_anomaly:centre
              )
            or
                [[ anomaly_deviations ]]
              *
                (
                    avg_over_time(gpu:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m])
                  or
                    quantile_over_time(
                      0.5,
                      gpu:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                    )
                )
          )
        and
          gpu:gputally_anomaly:hourly offset 1d
        """,
    ),
    RecordingRule(
        "gpu:gputally_anomaly:highest",
        """
        (
              (
                    gpu:gputally_anomaly:centre
                  >
                    max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  gpu:gputally_anomaly:centre
              )
            >
              max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
          or
            max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
          or
            (
                  gpu:gputally_anomaly:centre
                >
                  max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
              or
                max_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
              or
                gpu:gputally_anomaly:centre
            )
        )
        """,
    ),
    RecordingRule(
        "gpu:gputally_anomaly:upper",
        """
          clamp_max(
            gpu:gputally_anomaly:highest{anomaly_name=~".+_ratio"} + gpu:gputally_anomaly:margin,
            1
          )
        or
          gpu:gputally_anomaly:highest + gpu:gputally_anomaly:margin
        """,
    ),
    RecordingRule(
        "gpu:gputally_anomaly:lower",
        """
        clamp_min(
            (
                  (
                        gpu:gputally_anomaly:centre
                      <
                        min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      gpu:gputally_anomaly:centre
                  )
                <
                  min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
              or
                min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
              or
                (
                      gpu:gputally_anomaly:centre
                    <
                      min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    min_over_time(gpu:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    gpu:gputally_anomaly:centre
                )
            )
          -
            gpu:gputally_anomaly:margin,
          0
        )
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:hourly",
        """
          avg_over_time(namespace:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
        or
          quantile_over_time(0.5, namespace:gputally_anomaly:input{anomaly_strategy="robust"}[1h])
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:centre",
        """
          namespace:gputally_anomaly:hourly{anomaly_strategy="adaptive"} offset 30m
        or
          quantile_over_time(0.5, namespace:gputally_anomaly:hourly{anomaly_strategy="robust"}[1d:15m])
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:deviation",
        """
          stddev_over_time(namespace:gputally_anomaly:input{anomaly_strategy="adaptive"}[1h])
        or
          abs(
              namespace:gputally_anomaly:input{anomaly_strategy="robust"}
            -
              namespace:gputally_anomaly:centre{anomaly_strategy="robust"}
          )
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:margin",
        """
          (
                  [[ anomaly_deviations ]]
                *
                  (
                      avg_over_time(
                        namespace:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m]
                      )
                    or
                      quantile_over_time(
                        0.5,
                        namespace:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                      )
                  )
              >
                (
                      [[ anomaly_margin_ratio ]] * namespace:gputally_anomaly:centre
                    >
                        [[ anomaly_floor_ratio ]]
                      *
                        max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                  or
                    [[ anomaly_floor_ratio ]] * max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                  or
                    [[ anomaly_margin_ratio ]] * namespace:gputally_anomaly:centre
                )
            or
              (
                    [[ anomaly_margin_ratio ]] * namespace:gputally_anomaly:centre
                  >
                    [[ anomaly_floor_ratio ]] * max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                or
                  [[ anomaly_floor_ratio ]] * max_over_time(namespace:gputally_anomaly:hourly[1d:15m])
                or
                  [[ anomaly_margin_ratio ]] * namespace:gputally_anomaly:centre
              )
            or
                [[ anomaly_deviations ]]
              *
                (
                    avg_over_time(
                      namespace:gputally_anomaly:deviation{anomaly_strategy="adaptive"}[1d:15m]
                    )
                  or
                    quantile_over_time(
                      0.5,
                      namespace:gputally_anomaly:deviation{anomaly_strategy="robust"}[1d:15m]
                    )
                )
          )
        and
          namespace:gputally_anomaly:hourly offset 1d
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:highest",
        """
        (
              (
                    namespace:gputally_anomaly:centre
                  >
                    max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                or
                  namespace:gputally_anomaly:centre
              )
            >
              max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
          or
            max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
          or
            (
                  namespace:gputally_anomaly:centre
                >
                  max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
              or
                max_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
              or
                namespace:gputally_anomaly:centre
            )
        )
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:upper",
        """
          clamp_max(
              namespace:gputally_anomaly:highest{anomaly_name=~".+_ratio"}
            +
              namespace:gputally_anomaly:margin,
            1
          )
        or
          namespace:gputally_anomaly:highest + namespace:gputally_anomaly:margin
        """,
    ),
    RecordingRule(
        "namespace:gputally_anomaly:lower",
        """
        clamp_min(
            (
                  (
                        namespace:gputally_anomaly:centre
                      <
                        min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                    or
                      namespace:gputally_anomaly:centre
                  )
                <
                  min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
              or
                min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 6d22h30m)
              or
                (
                      namespace:gputally_anomaly:centre
                    <
                      min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    min_over_time(namespace:gputally_anomaly:hourly[3h:15m] offset 22h30m)
                  or
                    namespace:gputally_anomaly:centre
                )
            )
          -
            namespace:gputally_anomaly:margin,
          0
        )
        """,
    ),
)
