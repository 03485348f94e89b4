"""Alerts of the past, written as Prometheus would have."""

from tools.replay.alert_states import openmetrics
from tools.replay.firing import Firing
from tools.replay.fleet import Period

PERIOD = Period(1000, 1300, 60)


def test_a_firing_alert_has_its_state_and_its_start() -> None:
    lost = Firing("Lost", (("gpu", "7"), ("severity", "critical")), 1120, 1240)
    assert list(openmetrics([lost], {"Lost": 120.0}, PERIOD)) == [
        'ALERTS{alertname="Lost",gpu="7",severity="critical",alertstate="firing"} 1.0 1120.000\n',
        'ALERTS{alertname="Lost",gpu="7",severity="critical",alertstate="firing"} 1.0 1180.000\n',
        'ALERTS{alertname="Lost",gpu="7",severity="critical",alertstate="firing"} 1.0 1240.000\n',
        'ALERTS_FOR_STATE{alertname="Lost",gpu="7",severity="critical"} 1000.0 1120.000\n',
        'ALERTS_FOR_STATE{alertname="Lost",gpu="7",severity="critical"} 1000.0 1180.000\n',
        'ALERTS_FOR_STATE{alertname="Lost",gpu="7",severity="critical"} 1000.0 1240.000\n',
        "# EOF\n",
    ]


def test_a_label_may_contain_quotes_and_backslashes() -> None:
    odd = Firing("Odd", (("pod", 'a"b\\c'),), 1000, 1000)
    assert next(openmetrics([odd], {"Odd": 0.0}, PERIOD)) == (
        'ALERTS{alertname="Odd",pod="a\\"b\\\\c",alertstate="firing"} 1.0 1000.000\n'
    )
