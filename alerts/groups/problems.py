"""GPUs that somebody has to look at, each with what is wrong with it: few series, however large the fleet."""

from alerts.groups.phrases import GPU, MODEL, of_gpu
from alerts.model import Record

_CRITICAL, _WARNING, _SUSPICION = 3, 2, 1


def _problem(name: str, severity: int, condition: str) -> str:
    return f'label_replace(max by ({GPU}) ({condition}) * 0 + {severity}, "problem", "{name}", "uuid", ".*")'


def _throttled(reason: str) -> str:
    return f'gputally_gpu_throttle_active{{reason="{reason}"}} == 1'


_FOUND = (
    _problem("lost: answers no more", _CRITICAL, "gputally_gpu_up == 0"),
    _problem(
        "memory errors, not corrected",
        _CRITICAL,
        'gputally_gpu_ecc_errors_total{type="uncorrected", lifetime="volatile"} > 0',
    ),
    _problem("no spare memory rows left", _CRITICAL, "gputally_gpu_remapped_rows_failure == 1"),
    _problem("driver asks for recovery", _CRITICAL, 'gputally_gpu_recovery_action{action="none"} == 0'),
    _problem(
        "critical XID in the last hour",
        _CRITICAL,
        'gputally_gpu_xid_last_timestamp_seconds{xid=~"[[ xid_critical ]]"} > time() - 3600',
    ),
    _problem("slowed down, too hot", _WARNING, _throttled("hw_thermal_slowdown")),
    _problem("slowed down, power brake", _WARNING, _throttled("hw_power_brake_slowdown")),
    _problem("memory row waits for a reset", _WARNING, "gputally_gpu_remapped_rows_pending == 1"),
    _problem(
        "busy at idle power: hangs?",
        _SUSPICION,
        f"{of_gpu('gputally_gpu_utilization_ratio')} >= [[ hang_utilization_ratio ]]"
        f" and {of_gpu('gputally_gpu_power_watts')} / {of_gpu('gputally_gpu_power_limit_watts')}"
        " < [[ hang_power_ratio ]]",
    ),
)
SEVERITY = Record("gpu:gputally_problem:severity", f"({' or '.join(_FOUND)}) * {MODEL}")
