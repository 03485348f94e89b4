"""The bill: each joule and each second of the exporters' counters in exactly one minute. docs/billing.md.

A record of the bill is what was added since the evaluation before: the counter less its level, which is the
counter at that evaluation. The sum over a range is exact, whatever the length of a job or of a gap.

A level is looked up as of a millisecond ago, so that the order of the rules in the group does not matter. It
is valid within one ledger only, and that of an owner only if its account was open at the last evaluation that
had the GPU: an account that was closed in between begins at 0 again.
"""

from textwrap import dedent, indent

from alerts.model import Group, RecordingRule
from alerts.schema import GPU

_GAP, _GAP_SECONDS = "6h", 21_600
"""A longer gap is not made up for."""
_STARTING_SECONDS = 900
"""An allocated GPU on which nothing ever ran is idle, not starting, after this time."""
_OWNER = {"pod": "namespace, pod", "host": "owner"}
_ACCOUNT = {"pod": f"{GPU}, namespace, pod, container", "host": f"{GPU}, owner"}
_DEVICE = "cluster, node, uuid"
_OF_NODE = "cluster, node, model"
_LEDGER = "gpu:gputally_bill_ledger:timestamp"
_SAME_LEDGER = "gpu:gputally_bill_same_ledger:timestamp"
_CLOCK = "gpu:gputally_bill_clock:timestamp"


def _put(expression: str, **parts: str) -> str:
    """The expression with parts of it in place of `<name>`, each on lines of its own."""
    lines = []
    for line in dedent(expression).strip("\n").splitlines():
        name = line.strip()[1:-1]
        if line.strip() == f"<{name}>":
            if part := dedent(parts[name]).strip("\n"):
                lines.append(indent(part, line[: line.index("<")]))
        else:
            lines.append(line)
    return "\n".join(lines)


def _newest(metric: str, matchers: str = "") -> str:
    """The samples, and the last ones of an exporter that has vanished since the last evaluation."""
    return f"""
      (
          {metric}{matchers}
        or
            last_over_time(
              {metric}{matchers}[1m]
            )
          unless on (cluster, node, instance)
            gputally_snapshot_timestamp_seconds
      )
    """


def _counter(metric: str, labels: str, matchers: str = "") -> str:
    """While two exporters of a node have series (one was replaced), only the newer ledger counts."""
    return _put(
        f"""
        max by ({labels}) (
            <counter>
          unless on (cluster, node, gpu, instance)
            (
                <start>
              < on ({GPU}) group_left ()
                {_LEDGER}
            )
        )
        """,
        counter=_newest(metric, matchers),
        start=_newest("gputally_gpu_ledger_start_timestamp_seconds"),
    )


def _added(level: str, account: str = "") -> str:
    """What a counter has counted since the evaluation before, for GPUs whose ledger is known since then.

    `account` is the record of the accounts that were open then: others begin at 0.
    """
    same_account = (
        _put(
            f"""
            and on ({_ACCOUNT[account]})
              device:gputally_bill_{account}_same_account:timestamp
            """
        )
        if account
        else ""
    )
    return _put(
        f"""
          (
                  {level}
                -
                  (
                      last_over_time({level}[{_GAP}] offset 1ms)
                    and on (cluster, node, gpu)
                      {_SAME_LEDGER}
                    <same_account>
                  )
              >= 0
            or
              {level}
          )
        and on (cluster, node, gpu)
          gpu:gputally_bill_wall:seconds
        """,
        same_account=same_account,
    )


_SHARES = (
    # A GPU that is divided is no device itself: its MIG devices are, and add up to it.
    RecordingRule(
        "device:gputally_share:ratio",
        """
            max by (cluster, node, gpu, uuid, model) (gputally_gpu_info)
          unless on (cluster, node, uuid)
            label_replace(
              max by (cluster, node, parent_uuid) (gputally_mig_info),
              "uuid", "$1", "parent_uuid", "(.+)"
            )
        or
          sum by (cluster, node, gpu, uuid, model) (
              (
                    max by (cluster, node, gpu, uuid, parent_uuid) (
                        gputally_mig_memory_total_bytes
                      * on (cluster, node, uuid) group_left (parent_uuid)
                        max by (cluster, node, uuid, parent_uuid) (gputally_mig_info)
                    )
                  / on (cluster, node, parent_uuid) group_left ()
                    sum by (cluster, node, parent_uuid) (
                      max by (cluster, node, gpu, uuid, parent_uuid) (
                          gputally_mig_memory_total_bytes
                        * on (cluster, node, uuid) group_left (parent_uuid)
                          max by (cluster, node, uuid, parent_uuid) (gputally_mig_info)
                      )
                    )
                or
                    max by (cluster, node, gpu, uuid, parent_uuid) (gputally_mig_info)
                  / on (cluster, node, parent_uuid) group_left ()
                    count by (cluster, node, parent_uuid) (
                      max by (cluster, node, gpu, uuid, parent_uuid) (gputally_mig_info)
                    )
              )
            * on (cluster, node, parent_uuid) group_left (model)
              label_replace(
                max by (cluster, node, uuid, model) (gputally_gpu_info),
                "parent_uuid", "$1", "uuid", "(.+)"
              )
          )
        """,
    ),
)

_LEDGERS = (
    RecordingRule(
        "gpu:gputally_ledger_start:timestamp",
        _put(
            f"""
            max by ({GPU}) (
              <start>
            )
            """,
            start=_newest("gputally_gpu_ledger_start_timestamp_seconds"),
        ),
    ),
    # A GPU without a meter has no ledger: 0. One that is lost has none until it is back.
    RecordingRule(
        _LEDGER,
        f"""
          gpu:gputally_ledger_start:timestamp
        or
            max by ({GPU}) (gputally_gpu_up) * 0
          unless on ({GPU})
            last_over_time(gpu:gputally_ledger_start:timestamp[{_GAP}])
        """,
    ),
    RecordingRule(
        _SAME_LEDGER,
        f"""
          {_LEDGER}
        == on ({GPU})
          last_over_time({_LEDGER}[{_GAP}] offset 1ms)
        """,
    ),
    RecordingRule(
        _CLOCK,
        _put(
            f"""
              {_LEDGER} * 0
            + on (cluster, node) group_left ()
              max by (cluster, node) (
                <snapshot>
              )
            """,
            snapshot=_newest("gputally_snapshot_timestamp_seconds"),
        ),
    ),
    # Since the last evaluation, or since the ledger began; absent if what was counted before is not known.
    RecordingRule(
        "gpu:gputally_bill_wall:seconds",
        f"""
            clamp_min(
                {_CLOCK}
              -
                last_over_time({_CLOCK}[{_GAP}] offset 1ms),
              0
            )
          and
            (
                {_SAME_LEDGER}
              or
                  {_LEDGER}
                >
                  last_over_time({_CLOCK}[{_GAP}] offset 1ms)
            )
        or
            clamp_min(
                {_CLOCK}
              -
                ({_LEDGER} > time() - {_GAP_SECONDS}),
              0
            )
          unless
            last_over_time({_CLOCK}[{_GAP}] offset 1ms)
        """,
    ),
    # A GPU that vanishes keeps its model for a while: with and without it there would be two series, which
    # cannot be joined.
    RecordingRule(
        "gpu:gputally_bill_model:info",
        f"""
          topk by (cluster, node, gpu) (
            1,
            max by (cluster, node, gpu, model) (last_over_time(gputally_gpu_info[15m]))
          )
        or on (cluster, node, gpu)
          max by (cluster, node, gpu) ({_LEDGER}) * 0 + 1
        """,
    ),
    # A new GPU has no price of its own before the next evaluation of the prices.
    RecordingRule(
        "node:gputally_bill_price:per_hour",
        """
          max by (cluster, node, model) (gpu:gputally_price:per_hour)
        or
            max by (cluster, node, model) (gpu:gputally_bill_model:info)
          * on (cluster, model) group_left ()
            max by (cluster, model) (gpu:gputally_price:per_hour)
        """,
    ),
    # A pod that has ended keeps its workload as long as its last rates are visible.
    RecordingRule(
        "pod:gputally_workload:info",
        """
          topk by (cluster, namespace, pod) (
            1,
            max by (cluster, namespace, pod, workload) (
              last_over_time(gputally_pod_info{workload!=""}[15m])
            )
          )
        or on (cluster, namespace, pod)
          clamp_min(max by (cluster, namespace, pod) (last_over_time(gputally_pod_active[15m])), 1)
        """,
    ),
)


def _accounts(kind: str) -> tuple[RecordingRule, ...]:
    """The levels of all accounts, and the accounts that were open at the last evaluation of their GPU."""
    labels = _ACCOUNT[kind]
    levels = f'{{__name__=~"device:gputally_{kind}_(energy|held|busy):level"}}'
    return (
        RecordingRule(
            f"device:gputally_{kind}_energy:level",
            _counter(f"gputally_{kind}_energy_joules_total", f"{labels}, basis"),
        ),
        RecordingRule(
            f"device:gputally_{kind}_held:level", _counter(f"gputally_{kind}_held_seconds_total", labels)
        ),
        RecordingRule(
            f"device:gputally_{kind}_busy:level", _counter(f"gputally_{kind}_busy_seconds_total", labels)
        ),
        RecordingRule(
            f"device:gputally_bill_{kind}_account:timestamp",
            f"""
                max by ({labels}) (
                  {levels}
                )
              * 0
            + on (cluster, node, gpu) group_left ()
              max by (cluster, node, gpu) ({_CLOCK})
            """,
        ),
        RecordingRule(
            f"device:gputally_bill_{kind}_same_account:timestamp",
            f"""
              last_over_time(device:gputally_bill_{kind}_account:timestamp[{_GAP}] offset 1ms)
            == on (cluster, node, gpu) group_left ()
              max by (cluster, node, gpu) (last_over_time({_CLOCK}[{_GAP}] offset 1ms))
            """,
        ),
    )


_LEVELS = (
    RecordingRule("gpu:gputally_meter:level", _counter("gputally_gpu_energy_joules_total", GPU)),
    RecordingRule(
        "gpu:gputally_ledger:level",
        _put(
            f"""
              gpu:gputally_meter:level
            - on ({GPU})
              <initial>
            """,
            initial=_counter("gputally_gpu_unattributed_energy_joules_total", GPU, '{reason="initial"}'),
        ),
    ),
    RecordingRule(
        "gpu:gputally_unattributed:level",
        _counter(
            "gputally_gpu_unattributed_energy_joules_total", f"{GPU}, reason", '{reason!~"initial|expired"}'
        ),
    ),
    *_accounts("pod"),
    *_accounts("host"),
)

_METER = (
    # The hardware counted on while there was no ledger; after a boot it began at 0. A record that others are
    # made of has a value at every evaluation: a last value that is not replaced would be counted again.
    RecordingRule(
        "gpu:gputally_bill_between_ledgers:joules",
        f"""
            (
                    (gpu:gputally_meter:level - gpu:gputally_ledger:level)
                  -
                    last_over_time(gpu:gputally_meter:level[{_GAP}] offset 1ms)
                >= 0
              or
                  (gpu:gputally_meter:level - gpu:gputally_ledger:level)
                and
                  last_over_time(gpu:gputally_meter:level[{_GAP}] offset 1ms)
            )
          and
            gpu:gputally_bill_wall:seconds
          unless
            {_SAME_LEDGER}
        or
          gpu:gputally_meter:level * 0
        """,
    ),
    RecordingRule(
        "gpu:gputally_bill_meter:joules",
        _put(
            f"""
            sum by ({GPU}) (
              label_replace(
                <added>
                , "part", "ledger", "uuid", ".*"
              )
              or
                gpu:gputally_bill_between_ledgers:joules
            )
            """,
            added=_added("gpu:gputally_ledger:level"),
        ),
    ),
    RecordingRule(
        "gpu:gputally_bill_unattributed:joules",
        _put(
            f"""
            sum by ({GPU}, reason) (
              label_replace(
                <added>
                , "part", "ledger", "uuid", ".*"
              )
              or
                label_replace(
                  gpu:gputally_bill_between_ledgers:joules, "reason", "unobserved", "uuid", ".*"
                )
            )
            """,
            added=_added("gpu:gputally_unattributed:level"),
        ),
    ),
)

_HELD = '{__name__=~"device:gputally_bill_(pod|host)_held:seconds"}'
_BUSY = '{__name__=~"device:gputally_bill_(pod|host)_busy:seconds"}'
_ALLOCATED = '{__name__=~"device:gputally_bill_(pod|host)_allocated:seconds"}'
_WALL = "max by (cluster, node, gpu) (gpu:gputally_bill_wall:seconds)"
_SHARE = f"topk by ({_DEVICE}) (1, last_over_time(device:gputally_share:ratio[15m]))"


def _at_most_wall(seconds: str) -> str:
    return _put(
        f"""
          {_WALL}
        - on (cluster, node, gpu) group_right ()
          clamp_min(
              {_WALL}
            - on (cluster, node, gpu) group_right ()
              <seconds>
            ,
            0
          )
        """,
        seconds=seconds,
    )


def _owned_seconds(kind: str, name: str) -> RecordingRule:
    """Several containers of a pod never hold more than the device."""
    added = _put(
        f"""
        sum by ({GPU}, {_OWNER[kind]}) (
          <added>
        )
        """,
        added=_added(f"device:gputally_{kind}_{name}:level", kind),
    )
    return RecordingRule(f"device:gputally_bill_{kind}_{name}:seconds", _at_most_wall(added))


_DEVICES = (
    *(_owned_seconds(kind, name) for kind in _OWNER for name in ("held", "busy")),
    RecordingRule("device:gputally_bill_held:seconds", _at_most_wall(f"sum by ({GPU}) ({_HELD})")),
    # A device that several hold is divided among them by the time that each of them held it.
    RecordingRule(
        "device:gputally_bill_part:ratio",
        f"""
          max by ({_DEVICE}) (device:gputally_bill_held:seconds)
        /
          (sum by ({_DEVICE}) ({_HELD}) > 0)
        """,
    ),
    # The labels are those of the device: a GPU of two dies has all its owners under the index of the first.
    *(
        RecordingRule(
            f"device:gputally_bill_{kind}_allocated:seconds",
            f"""
              device:gputally_bill_{kind}_held:seconds
            * on ({_DEVICE}) group_left ()
              device:gputally_bill_part:ratio
            * on ({_DEVICE}) group_left (gpu, model)
              {_SHARE}
            """,
        )
        for kind in _OWNER
    ),
    # Known if that of all owners is; work of MPS clients is no idle time.
    RecordingRule(
        "device:gputally_bill_busy:ratio",
        f"""
          clamp_max(
              sum by ({_DEVICE}) ({_BUSY})
            /
              (max by ({_DEVICE}) (device:gputally_bill_held:seconds) > 0),
            1
          )
        unless on ({_DEVICE})
          (
              device:gputally_bill_pod_held:seconds > 0
            unless on ({_DEVICE}, namespace, pod)
              device:gputally_bill_pod_busy:seconds
          )
        unless on ({_DEVICE})
          (
              device:gputally_bill_host_held:seconds > 0
            unless on ({_DEVICE}, owner)
              device:gputally_bill_host_busy:seconds
          )
        """,
    ),
    RecordingRule(
        "device:gputally_bill_pod_starting:seconds",
        f"""
          max by ({_DEVICE}, namespace, pod) (device:gputally_pod_held:level) < {_STARTING_SECONDS}
        unless on ({_DEVICE}, namespace, pod)
          device:gputally_pod_busy:level > 0
        unless on ({_DEVICE}, namespace, pod)
          gputally_pod_processes > 0
        """,
    ),
    RecordingRule(
        "gpu:gputally_bill_not_allocated:seconds",
        f"""
          clamp_min(
              {_WALL}
            -
              sum by (cluster, node, gpu) ({_ALLOCATED})
            or
              {_WALL},
            0
          )
        * on (cluster, node, gpu) group_left (model)
          gpu:gputally_bill_model:info
        """,
    ),
    # Of the time that no owner is charged for, by the energy that was used in it.
    RecordingRule(
        "gpu:gputally_bill_unobserved:ratio",
        """
          (sum by (cluster, node, gpu) (gpu:gputally_bill_unattributed:joules{reason="unobserved"}) > 0)
        /
          sum by (cluster, node, gpu) (gpu:gputally_bill_unattributed:joules{reason=~"unobserved|idle"})
        """,
    ),
)

_ENERGY_COST = "\n* [[ pue ]] / 3600000 * [[ kwh_price ]]"
_CO2 = "\n* [[ pue ]] / 3600000 * [[ co2_grams_per_kwh ]]"


def _of_workload(expression: str, kind: str) -> str:
    if kind == "host":
        return _put("<owners>", owners=expression)
    return _put(
        """
          <pods>
        * on (cluster, namespace, pod) group_left (workload)
          pod:gputally_workload:info
        """,
        pods=expression,
    )


def _owners(kind: str) -> tuple[RecordingRule, ...]:
    """What each owner is charged, by node and model."""
    labels = f"cluster, node, {_OWNER[kind]}, model"
    idle = f"""
          device:gputally_bill_{kind}_allocated:seconds
        * on ({_DEVICE}) group_left ()
          (1 - device:gputally_bill_busy:ratio)
    """
    if kind == "pod":
        idle = _put(
            f"""
              <idle>
            unless on ({_DEVICE}, namespace, pod)
              device:gputally_bill_pod_starting:seconds
            """,
            idle=idle,
        )
    amounts = {
        "energy:joules": _put(
            f"""
            sum by ({labels}, basis) (
                (
                  <added>
                )
              * on (cluster, node, gpu) group_left (model)
                gpu:gputally_bill_model:info
            )
            """,
            added=_added(f"device:gputally_{kind}_energy:level", kind),
        ),
        "allocated:seconds": f"sum by ({labels}) (device:gputally_bill_{kind}_allocated:seconds)",
        "busy:seconds": f"""
            sum by ({labels}) (
                device:gputally_bill_{kind}_busy:seconds
              * on ({_DEVICE}) group_left (model)
                {_SHARE}
            )
        """,
        "idle:seconds": _put(
            f"""
            sum by ({labels}) (
              <idle>
            )
            """,
            idle=idle,
        ),
    }
    energy = f"sum without (basis) ({kind}:gputally_bill_energy:joules)"
    return (
        *(
            RecordingRule(f"{kind}:gputally_bill_{name}", _of_workload(amount, kind))
            for name, amount in amounts.items()
        ),
        *(
            RecordingRule(
                f"{kind}:gputally_bill_{cost}:money",
                f"""
                  {kind}:gputally_bill_{seconds}:seconds
                * on ({_OF_NODE}) group_left ()
                  node:gputally_bill_price:per_hour
                / 3600
                """,
            )
            for cost, seconds in (("gpu_cost", "allocated"), ("idle_cost", "idle"))
        ),
        RecordingRule(f"{kind}:gputally_bill_energy_cost:money", f"{energy}{_ENERGY_COST}"),
        RecordingRule(
            f"{kind}:gputally_bill_cost:money",
            f"""
            sum by ({labels}{", workload" if kind == "pod" else ""}) (
              {{__name__=~"{kind}:gputally_bill_(gpu|energy)_cost:money"}}
            )
            """,
        ),
        RecordingRule(f"{kind}:gputally_bill_co2:grams", f"{energy}{_CO2}"),
    )


_WORKLOADS = (
    RecordingRule(
        "workload:gputally_bill_energy:joules",
        "sum by (cluster, namespace, workload, model, basis) (pod:gputally_bill_energy:joules)",
    ),
    *(
        RecordingRule(
            f"workload:gputally_bill_{name}",
            f"sum by (cluster, namespace, workload, model) (pod:gputally_bill_{name})",
        )
        for name in (
            "allocated:seconds",
            "busy:seconds",
            "idle:seconds",
            "gpu_cost:money",
            "idle_cost:money",
            "energy_cost:money",
            "cost:money",
            "co2:grams",
        )
    ),
)

# Few series, so that the bill of a month reads little.
_NAMESPACES = (
    RecordingRule(
        "namespace:gputally_bill_energy:joules",
        "sum by (cluster, namespace, basis) (workload:gputally_bill_energy:joules)",
    ),
    *(
        RecordingRule(
            f"namespace:gputally_bill_{name}",
            f"sum by (cluster, namespace) (workload:gputally_bill_{name})",
        )
        for name in (
            "allocated:seconds",
            "busy:seconds",
            "idle:seconds",
            "gpu_cost:money",
            "energy_cost:money",
            "co2:grams",
        )
    ),
)
_MODELS = tuple(
    RecordingRule(f"model:gputally_bill_{name}", f"sum by (cluster, {labels}) (node:gputally_bill_{name})")
    for name, labels in (
        ("meter:joules", "model"),
        ("energy:joules", "model, basis, reason"),
        ("time:seconds", "model, state"),
        ("gpu_cost:money", "model, state"),
        ("energy_cost:money", "model, reason"),
        ("co2:grams", "model, reason"),
    )
)

_USED = f"""
      sum by (cluster, node, gpu, uuid, model) (
        {_ALLOCATED}
      )
    * on ({_DEVICE}) group_left ()
      device:gputally_bill_busy:ratio
"""
_THROTTLED = """
    max by (cluster, node, gpu) (
      avg_over_time(gputally_gpu_throttle_active{reason=~"hw_.*|sw_thermal_slowdown"}[1m])
    )
"""
_UP = "max by (cluster, node, gpu) (gputally_gpu_up)"
_OBSERVED = f"""
      gpu:gputally_bill_not_allocated:seconds
    * on (cluster, node, gpu) group_left ()
      (
          1 - gpu:gputally_bill_unobserved:ratio
        or
          {_WALL} * 0 + 1
      )
"""
_STATES = {
    "used": _put(
        """
            <used>
          * on (cluster, node, gpu) group_left ()
            (
                1
              -
                <throttled>
            )
        or
            <used>
        """,
        used=_USED,
        throttled=_THROTTLED,
    ),
    "throttled": _put(
        """
          <used>
        * on (cluster, node, gpu) group_left ()
          (
              <throttled>
            > 0
          )
        """,
        used=_USED,
        throttled=_THROTTLED,
    ),
    "idle": '{__name__=~"(pod|host):gputally_bill_idle:seconds"}',
    "starting": f"""
          device:gputally_bill_pod_allocated:seconds
        * on ({_DEVICE}) group_left ()
          (1 - device:gputally_bill_busy:ratio)
      and on ({_DEVICE}, namespace, pod)
        device:gputally_bill_pod_starting:seconds
    """,
    "unknown": f"""
        {_ALLOCATED}
      unless on ({_DEVICE})
        device:gputally_bill_busy:ratio
    """,
    "free": _put(
        f"""
          <observed>
        unless on (cluster, node, gpu)
          {_UP} == 0
        """,
        observed=_OBSERVED,
    ),
    "lost": _put(
        f"""
          <observed>
        * on (cluster, node, gpu) group_left ()
          ({_UP} == bool 0)
        """,
        observed=_OBSERVED,
    ),
    "unobserved": """
          gpu:gputally_bill_not_allocated:seconds
        * on (cluster, node, gpu) group_left ()
          gpu:gputally_bill_unobserved:ratio
    """,
}


def _in_state(state: str, seconds: str) -> str:
    return _put(
        f"""
          label_replace(
            sum by ({_OF_NODE}) (
              <seconds>
            ),
            "state", "{state}", "node", ".*"
          )
        """,
        seconds=seconds,
    )


_NODES = (
    RecordingRule(
        "node:gputally_bill_meter:joules",
        f"""
        sum by ({_OF_NODE}) (
            gpu:gputally_bill_meter:joules
          * on (cluster, node, gpu) group_left (model)
            gpu:gputally_bill_model:info
        )
        """,
    ),
    RecordingRule(
        "node:gputally_bill_energy:joules",
        f"""
          sum by ({_OF_NODE}, basis) ({{__name__=~"(pod|host):gputally_bill_energy:joules"}})
        or
          sum by ({_OF_NODE}, reason) (
              gpu:gputally_bill_unattributed:joules
            * on (cluster, node, gpu) group_left (model)
              gpu:gputally_bill_model:info
          )
        """,
    ),
    RecordingRule(
        "node:gputally_bill_time:seconds",
        "\nor\n".join(_in_state(state, seconds) for state, seconds in _STATES.items()),
    ),
    RecordingRule(
        "node:gputally_bill_gpu_cost:money",
        f"""
          (
              label_replace(
                sum by ({_OF_NODE}) (
                  node:gputally_bill_time:seconds{{state!~"free|lost|unobserved"}}
                ),
                "state", "allocated", "node", ".*"
              )
            or
              node:gputally_bill_time:seconds{{state=~"free|lost|unobserved"}}
          )
        * on ({_OF_NODE}) group_left ()
          node:gputally_bill_price:per_hour
        / 3600
        """,
    ),
    RecordingRule(
        "node:gputally_bill_energy_cost:money",
        f"sum by ({_OF_NODE}, reason) (node:gputally_bill_energy:joules){_ENERGY_COST}",
    ),
    RecordingRule(
        "node:gputally_bill_cost:money",
        f"""
        sum by ({_OF_NODE}) (
          {{__name__=~"node:gputally_bill_(gpu|energy)_cost:money"}}
        )
        """,
    ),
    # Together with the costs of the owners this is the whole cost.
    RecordingRule(
        "node:gputally_bill_unallocated_cost:money",
        f"""
        sum by ({_OF_NODE}) (
            node:gputally_bill_gpu_cost:money{{state!="allocated"}}
          or
            node:gputally_bill_energy_cost:money{{reason!=""}}
        )
        """,
    ),
    RecordingRule(
        "node:gputally_bill_co2:grams",
        f"sum by ({_OF_NODE}, reason) (node:gputally_bill_energy:joules){_CO2}",
    ),
)

GROUP = Group(
    "gputally-bill",
    (
        *_SHARES,
        *_LEDGERS,
        *_LEVELS,
        *_METER,
        *_DEVICES,
        *_owners("pod"),
        *_owners("host"),
        *_WORKLOADS,
        *_NAMESPACES,
        *_NODES,
        *_MODELS,
    ),
    interval="1m",
)
