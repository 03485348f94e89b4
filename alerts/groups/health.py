"""Are the GPUs and their links well?"""

from alerts.groups.phrases import GPU, WHERE, of_gpu, with_card
from alerts.model import Action, Alert, Group, Record, Severity

NVLINKS = "gpu:gputally_gpu_nvlink_up:sum"
XGMI_LINKS = "gpu:gputally_gpu_xgmi_up:sum"


def _xid(codes: str) -> str:
    """By its last time: a counter that appears with 1 has no increase, and its GPU may be lost by now."""
    times = f'gputally_gpu_xid_last_timestamp_seconds{{xid=~"{codes}"}}'
    last = of_gpu(f"max_over_time({times}[ [[ xid_window_seconds ]]s])", "xid")
    return with_card(f"time() - {last} < [[ xid_window_seconds ]]")


def _throttled(reason: str) -> str:
    active = f'avg_over_time(gputally_gpu_throttle_active{{reason="{reason}"}}[5m])'
    return with_card(f"{of_gpu(active)} >= [[ throttle_ratio ]]")


def _links_up(metric: str) -> str:
    return with_card(f"sum by ({GPU}) ({of_gpu(metric, 'link')})")


def _links_missing(record: str) -> str:
    """Fewer than it had, or than others of its model in the node. One with none was never connected."""
    before = f"max_over_time({record}[ [[ link_window ]] ]) - {record} > 0"
    others = (
        f"max by (cluster, node, model) ({record}) - on (cluster, node, model) group_right () {record} > 0"
    )
    return f"{before} or ({others} and {record} > 0)"


def _below_limit(limit: str, temperature: str) -> str:
    return f"{of_gpu(limit)} - {of_gpu(f'avg_over_time({temperature}[5m])')}"


_CORE_MARGIN = (
    f"({of_gpu('avg_over_time(gputally_gpu_temperature_margin_celsius[5m])')} "
    f"or {_below_limit('gputally_gpu_temperature_slowdown_celsius', 'gputally_gpu_temperature_celsius')})"
)
_MEMORY_MARGIN = _below_limit(
    'gputally_gpu_sensor_critical_celsius{sensor="mem"}', 'gputally_gpu_sensor_celsius{sensor="mem"}'
)
_RECOVERY = (
    'label_replace(gputally_gpu_recovery_action{action!="none"} == 1, "recovery", "$1", "action", "(.+)")'
)
_RAS = "gputally_gpu_ras_errors_total"


def _ras(kind: str, function: str = "", window: str = "") -> str:
    """Errors of one kind in all blocks of the chip."""
    errors = of_gpu(f'{function}({_RAS}{{type="{kind}"}}{window})', "block", "type")
    return f"sum by ({GPU}, type) ({errors})"


# An idle link slows down to save power and is fast again as soon as there is work: what counts is the best
# that it reached in a time with work.
_PCIE_WIDTH = (
    f"{of_gpu('max_over_time(gputally_gpu_pcie_width[15m])')} / {of_gpu('gputally_gpu_pcie_width_max')}"
)
_PCIE_GENERATIONS = (
    f"({of_gpu('max_over_time(gputally_gpu_pcie_generation[15m])')}"
    f" - {of_gpu('gputally_gpu_pcie_generation_max')})"
)
_POWER_LIMIT = (
    f"({of_gpu('gputally_gpu_power_enforced_limit_watts')} or {of_gpu('gputally_gpu_power_limit_watts')})"
)

GROUP = Group(
    "gputally-health",
    (
        Record(NVLINKS, _links_up("gputally_gpu_nvlink_up")),
        Record(XGMI_LINKS, _links_up("gputally_gpu_xgmi_up")),
        Alert(
            "GPUTallyXidCritical",
            _xid("[[ xid_critical ]]"),
            Severity.CRITICAL,
            summary="A GPU reported an XID error that takes a reset or a repair.",
            description=f"{WHERE} reported XID {{{{ $labels.xid }}}} {{{{ $value | humanizeDuration }}}} "
            "ago. Work on it has failed or will; drain the node and do what the runbook says for this code.",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyXidWarning",
            _xid("[[ xid_warning ]]"),
            Severity.WARNING,
            summary="A GPU reported an XID error that is to be looked into.",
            description=f"{WHERE} reported XID {{{{ $labels.xid }}}} {{{{ $value | humanizeDuration }}}} "
            "ago. One job may have failed; the GPU still works. The runbook says what each code asks for.",
        ),
        Alert(
            "GPUTallyUncorrectableEcc",
            with_card(
                of_gpu('gputally_gpu_ecc_errors_total{type="uncorrected", lifetime="volatile"}')
                + f" > 0 unless on (cluster, node, uuid) {_RAS}"
            ),
            Severity.CRITICAL,
            summary="A GPU has memory errors that ECC could not correct.",
            description=f"{WHERE} has had {{{{ $value }}}} uncorrectable memory errors since its driver was "
            "loaded. Results that it computed may be wrong; stop giving it work, and reset it when its jobs "
            "have ended.",
            for_="1m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRowRemapFailure",
            with_card(f"{of_gpu('gputally_gpu_remapped_rows_failure')} == 1"),
            Severity.CRITICAL,
            summary="A GPU has run out of spare memory rows.",
            description=f"{WHERE} could not replace a broken row of its memory. More errors will come; drain "
            "the node and have the card replaced.",
            for_="1m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyRowRemapPending",
            with_card(f"{of_gpu('gputally_gpu_remapped_rows_pending')} == 1"),
            Severity.WARNING,
            summary="A GPU waits for a reset to replace a memory row.",
            description=f"{WHERE} has a broken row of memory that is replaced at its next reset. Reset it "
            "when its jobs have ended.",
            for_="5m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRetiredPagesPending",
            with_card(f"{of_gpu('gputally_gpu_retired_pages_pending')} == 1"),
            Severity.WARNING,
            summary="A GPU waits for a reset to retire memory pages.",
            description=f"{WHERE} has broken pages of memory that stay in use until its next reset. Reset it "
            "when its jobs have ended.",
            for_="5m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRecoveryNeeded",
            with_card(of_gpu(_RECOVERY, "recovery")),
            Severity.CRITICAL,
            summary="The driver asks for a GPU to be recovered.",
            description=f"The driver asks for {{{{ $labels.recovery }}}} of {WHERE}. Until then work on it "
            "fails or is not safe: drain the node and do that.",
            for_="1m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyThermalSlowdown",
            _throttled("hw_thermal_slowdown"),
            Severity.WARNING,
            summary="A GPU is so hot that its hardware slows it down.",
            description=f"{WHERE} was held down by its thermal protection for "
            f"{{{{ $value | humanizePercentage }}}} of "
            "the last 5 minutes; its work runs at half speed or less. Check fans, air flow and the room.",
            for_="5m",
        ),
        Alert(
            "GPUTallyPowerBrake",
            _throttled("hw_power_brake_slowdown"),
            Severity.WARNING,
            summary="The power supply holds a GPU down.",
            description=f"The server's power brake held {WHERE} down for "
            f"{{{{ $value | humanizePercentage }}}} of the "
            "last 5 minutes. A power supply has failed or is overloaded: look at the BMC's log.",
            for_="5m",
        ),
        Alert(
            "GPUTallyTemperatureNearLimit",
            with_card(f"{_CORE_MARGIN} < [[ temperature_margin_celsius ]]"),
            Severity.WARNING,
            summary="A GPU is nearly as hot as it may be.",
            description=f'{WHERE} has {{{{ printf "%.0f" $value }}}} degrees left to the temperature at '
            "which it slows itself down. Check fans, air flow and the room before it does.",
            for_="10m",
        ),
        Alert(
            "GPUTallyMemoryTemperatureNearLimit",
            with_card(f"{_MEMORY_MARGIN} < [[ temperature_margin_celsius ]]"),
            Severity.WARNING,
            summary="A GPU's memory is nearly as hot as it may be.",
            description=f'The memory of {WHERE} has {{{{ printf "%.0f" $value }}}} degrees left to its '
            "critical temperature, at which the card slows down. Check fans, air flow and the room.",
            for_="10m",
        ),
        Alert(
            "GPUTallyNvlinkCrcErrors",
            with_card(
                of_gpu('rate(gputally_gpu_nvlink_errors_total{type=~"crc_.*"}[5m])')
                + " >= [[ nvlink_crc_per_second ]]"
            ),
            Severity.WARNING,
            summary="An NVLink of a GPU has many CRC errors.",
            description=f"{WHERE} has {{{{ $value | humanize }}}} CRC errors a second on one of its NVLinks: "
            "packets are sent again and again. Jobs over several GPUs are slow; plan a reset, and a repair "
            "if it comes back.",
            for_="5m",
        ),
        Alert(
            "GPUTallyNvlinkErrors",
            with_card(
                f"sum by ({GPU}) ("
                + of_gpu('increase(gputally_gpu_nvlink_errors_total{type!~"crc_.*"}[1h])', "link", "type")
                + ") > 0"
            ),
            Severity.WARNING,
            summary="NVLinks of a GPU had to be recovered.",
            description=f'{WHERE} had {{{{ printf "%.0f" $value }}}} errors on its NVLinks in the last hour '
            "that go beyond CRC: replays, recoveries, broken packets. A link may be failing; see which with "
            "nvidia-smi nvlink -e.",
        ),
        Alert(
            "GPUTallyNvlinkDown",
            _links_missing(NVLINKS),
            Severity.WARNING,
            summary="NVLinks of a GPU are down.",
            description=f"{WHERE} has {{{{ $value }}}} NVLinks less than it had in the last [[ link_window "
            "]], or than its neighbours have. Jobs over several GPUs fail or crawl; drain the node and reset "
            "its GPUs.",
            for_="5m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyXgmiDown",
            _links_missing(XGMI_LINKS),
            Severity.WARNING,
            summary="XGMI links of a GPU are down.",
            description=f"{WHERE} has {{{{ $value }}}} XGMI links less than it had in the last [[ "
            "link_window ]], or than its neighbours have. Jobs over several GPUs fail or crawl; drain the "
            "node and restart it.",
            for_="5m",
            action=Action.DRAIN,
        ),
        Alert(
            "GPUTallyPcieDegraded",
            with_card(
                f"{_PCIE_WIDTH} * 2 ^ {_PCIE_GENERATIONS} < 1 and "
                f"{of_gpu('avg_over_time(gputally_gpu_utilization_ratio[15m])')} >= [[ pcie_busy_ratio ]]"
            ),
            Severity.WARNING,
            summary="The PCIe link of a busy GPU is slower than it should be.",
            description=f"{WHERE} is at work and its PCIe link reached {{{{ $value | humanizePercentage }}}} "
            "of its bandwidth at best. Loading and copying data is slow; reseat the card or its riser at the "
            "next service.",
            for_="5m",
        ),
        Alert(
            "GPUTallyPcieReplays",
            with_card(
                f"{of_gpu('rate(gputally_gpu_pcie_replays_total[5m])')} * 60 > [[ pcie_replays_per_minute ]]"
            ),
            Severity.WARNING,
            summary="The PCIe link of a GPU sends many packets again.",
            description=f"{WHERE} has {{{{ $value | humanize }}}} PCIe replays a minute: a bad contact, "
            "riser or slot. It may fall off the bus; reseat the card at the next service.",
            for_="10m",
        ),
        Alert(
            "GPUTallySuspectedHang",
            with_card(
                f"{of_gpu('max_over_time(gputally_gpu_power_watts[5m])')} / {_POWER_LIMIT} < [[ "
                f"hang_power_ratio ]] and {of_gpu('min_over_time(gputally_gpu_utilization_ratio[5m])')} >= "
                "[[ hang_utilization_ratio ]]"
            ),
            Severity.WARNING,
            summary="A GPU looks busy and draws no power: its job may hang.",
            description=f"{WHERE} has been busy without a break for 15 minutes, at no more than "
            "{{ $value | humanizePercentage }} of its power limit. A kernel that waits for another GPU looks "
            "like this: ask whose job it is (gputally whose), and whether it still makes progress.",
            for_="15m",
        ),
        Alert(
            "GPUTallyRasUncorrected",
            with_card(f"sum by ({GPU}) ({_ras('uncorrected')}) > 0"),
            Severity.CRITICAL,
            summary="An AMD GPU has errors that it could not correct.",
            description=f"{WHERE} has had {{{{ $value }}}} uncorrectable errors since its driver was loaded. "
            "Results that it computed may be wrong; stop giving it work, and reset it when its jobs have "
            "ended.",
            for_="1m",
            action=Action.RESET,
        ),
        Alert(
            "GPUTallyRasErrors",
            with_card(
                f"{_ras('deferred', 'increase', '[1h]')} > 0 or "
                f"{_ras('corrected', 'increase', '[1h]')} > [[ ras_corrected_per_hour ]]"
            ),
            Severity.WARNING,
            summary="An AMD GPU has more and more errors.",
            description=f'{WHERE} had {{{{ printf "%.0f" $value }}}} {{{{ $labels.type }}}} errors in the '
            "last hour. Deferred ones become uncorrectable when the data is used; have the card looked at "
            "before that.",
        ),
    ),
)
