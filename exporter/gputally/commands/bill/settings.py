"""Every setting of `gputally bill` once: field, flag, environment variable, default, help and parser."""

import argparse
import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from gputally.commands.bill.formats import FORMATS
from gputally.commands.bill.period import Period, PeriodError, choose_period, time_zone
from gputally.commands.bill.records import GROUPINGS
from gputally.flags import (
    ConfigError,
    Settings,
    boolean,
    duration,
    existing_file,
    one_of,
    output_file,
    read_values,
    setting,
)

_setting = partial(setting, env_prefix="GPUTALLY_BILL_", group="bill")
_LONGEST_PIECE_HOURS = 24


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("http://HOST:PORT or https://HOST:PORT, with a path if the store has one")
    return text.rstrip("/")


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise ValueError("a directory that exists")
    return Path(text)


def _hours(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d?", text) or int(text) > _LONGEST_PIECE_HOURS:
        raise ValueError(f"a whole number of hours from 1 to {_LONGEST_PIECE_HOURS}")
    return int(text)


def _price(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        raise ValueError("a price, such as 0.28")
    return float(text)


def _currency(text: str) -> str:
    if not re.fullmatch(r"[A-Z]{3}", text):
        raise ValueError("a code of ISO 4217, such as EUR or USD")
    return text


@dataclass(frozen=True, slots=True)
class BillConfig:
    """The settings of `bill`."""

    month: str = _setting(
        "", "--month", "the month to bill; without a period, the last whole month", metavar="YYYY-MM"
    )
    first: str = _setting(
        "",
        "--from",
        "start of the period: a date, or a date and time on a whole minute (2026-10-01T08:30)",
        metavar="DATE",
    )
    last: str = _setting("", "--to", "its end, which is not part of it; now at the latest", metavar="DATE")
    zone: ZoneInfo = _setting(
        ZoneInfo("UTC"),
        "--timezone",
        "time zone of months, dates and times",
        time_zone,
        metavar="ZONE",
    )
    by: str = _setting(
        "namespace",
        "--by",
        "what a row is",
        one_of(*GROUPINGS),
        metavar="|".join(GROUPINGS),
    )
    cluster: str = _setting(
        "", "--cluster", "bill this cluster only; without it all clusters together", metavar="NAME"
    )
    teams: Path | None = _setting(
        None,
        "--teams",
        "file that maps namespaces and pod labels to teams, for --by team (docs/billing.md)",
        existing_file,
        metavar="FILE",
    )
    currency: str = _setting(
        "",
        "--currency",
        "code of the currency of the prices in the rules, such as EUR; it is printed, nothing is converted",
        _currency,
        metavar="CODE",
    )
    prometheus: str = _setting(
        "",
        "--prometheus",
        "store that has the records: Prometheus, Thanos, Mimir, VictoriaMetrics",
        _url,
        group="store",
        metavar="URL",
    )
    secret: Path | None = _setting(
        None,
        "--prometheus-secret",
        "directory with any of the files username and password, token, headers, ca.crt, tls.crt and tls.key, "
        "as a Secret is mounted, instead of the flags for each of them",
        _directory,
        group="store",
        metavar="DIR",
    )
    login: Path | None = _setting(
        None,
        "--prometheus-login",
        "directory with the files username and password, for basic auth",
        _directory,
        group="store",
        metavar="DIR",
    )
    token: Path | None = _setting(
        None, "--prometheus-token", "file with a bearer token", existing_file, group="store", metavar="FILE"
    )
    headers: Path | None = _setting(
        None,
        "--prometheus-headers",
        "file with more headers, one `Name: value` per line, such as `X-Scope-OrgID: gpu`, the tenant of "
        "Mimir",
        existing_file,
        group="store",
        metavar="FILE",
    )
    authority: Path | None = _setting(
        None,
        "--prometheus-ca",
        "CA certificates to trust instead of the system's",
        existing_file,
        group="store",
        metavar="FILE",
    )
    certificate: Path | None = _setting(
        None, "--prometheus-cert", "client certificate", existing_file, group="store", metavar="FILE"
    )
    key: Path | None = _setting(
        None, "--prometheus-key", "its key", existing_file, group="store", metavar="FILE"
    )
    server_name: str = _setting(
        "",
        "--prometheus-server-name",
        "the name in the store's certificate, if it differs from the URL",
        group="store",
        metavar="NAME",
    )
    insecure: bool = _setting(
        False, "--prometheus-insecure", "do not check the store's certificate", boolean, group="store"
    )
    piece_hours: int = _setting(
        24,
        "--piece",
        "hours that one query reads at most; reduce it if the store refuses queries of many samples",
        _hours,
        group="store",
        metavar="HOURS",
    )
    timeout_seconds: float = _setting(
        120.0, "--query-timeout", "longest duration of one query", duration, group="store"
    )
    state_file: Path | None = _setting(
        None,
        "--state-file",
        "instead of a store: bill the state file of this host's exporter, since its ledger began",
        existing_file,
        group="ledger",
        metavar="FILE",
    )
    gpu_hour_price: float = _setting(
        0.0, "--gpu-hour-price", "price of a GPU-hour, for --state-file", _price, group="ledger", metavar="N"
    )
    kwh_price: float = _setting(
        0.0, "--kwh-price", "price of a kWh, for --state-file", _price, group="ledger", metavar="N"
    )
    format: str = _setting(
        "table", "--format", "format of the bill", one_of(*FORMATS), group="output", metavar="|".join(FORMATS)
    )
    output: Path | None = _setting(
        None,
        "--output",
        "file to write instead of standard output; it is replaced as a whole",
        output_file,
        group="output",
        metavar="FILE",
    )
    directory: Path | None = _setting(
        None,
        "--directory",
        "instead of --output: write to this directory, to a file named after the period; with --seal it "
        "continues the newest bill there",
        _directory,
        group="output",
        metavar="DIR",
    )
    webhook: Path | None = _setting(
        None,
        "--webhook",
        "file with a URL to which the bill is posted as well, as a file of its format",
        existing_file,
        group="output",
        metavar="FILE",
    )
    seal: bool = _setting(
        False,
        "--seal",
        "add a chain of hashes (SHA-256) over the rows, with which --verify finds a changed line",
        boolean,
        group="output",
    )
    previous: Path | None = _setting(
        None,
        "--previous",
        "sealed bill that this one continues: its last seal becomes part of the first",
        existing_file,
        group="output",
        metavar="FILE",
    )
    verify: Path | None = _setting(
        None,
        "--verify",
        "check the seal of this bill and exit: 0 if nothing was changed, else 1 with the changed lines",
        existing_file,
        group="output",
        metavar="FILE",
    )

    def period(self, now_seconds: float) -> Period:
        """Raises ConfigError."""
        try:
            return choose_period(self.month, self.first, self.last, self.zone, now_seconds)
        except PeriodError as error:
            raise ConfigError(str(error)) from None


GROUPS = {
    "bill": "bill",
    "store": "store of the records",
    "ledger": "without a store",
    "output": "output",
}
SETTINGS = Settings(BillConfig, GROUPS)


def read_settings(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> BillConfig:
    """Settings from flags, else environment, else defaults. Raises ConfigError."""
    config = _with_secret(BillConfig(**read_values(SETTINGS, arguments, environment)))
    if config.verify is None:
        _refuse_contradictions(config)
    return config


def _with_secret(config: BillConfig) -> BillConfig:
    """With the files of --prometheus-secret, for all that no flag sets."""
    if config.secret is None:
        return config
    files = {name: config.secret / name for name in ("token", "headers", "ca.crt", "tls.crt", "tls.key")}
    found = {name: path for name, path in files.items() if path.is_file()}
    has_login = (config.secret / "username").is_file()
    return replace(
        config,
        login=config.login or (config.secret if has_login else None),
        token=config.token or found.get("token"),
        headers=config.headers or found.get("headers"),
        authority=config.authority or found.get("ca.crt"),
        certificate=config.certificate or found.get("tls.crt"),
        key=config.key or found.get("tls.key"),
    )


def _refuse_contradictions(config: BillConfig) -> None:
    if bool(config.prometheus) == bool(config.state_file):
        raise ConfigError("set either --prometheus URL or --state-file FILE")
    if config.login and config.token:
        raise ConfigError("--prometheus-login and --prometheus-token cannot be used together")
    if bool(config.certificate) != bool(config.key):
        raise ConfigError("--prometheus-cert and --prometheus-key are used together")
    if (config.by == "team") != (config.teams is not None):
        raise ConfigError("--by team and --teams FILE are used together")
    if config.directory and (config.output or config.previous):
        raise ConfigError("--directory cannot be used with --output or --previous: it names the files itself")
    if config.previous and not config.seal:
        raise ConfigError("--previous needs --seal")
    if config.seal and config.format == "table":
        raise ConfigError("--seal: 'table' is not allowed as --format; it takes json, csv, focus or html")
    if config.format == "focus" and not config.currency:
        raise ConfigError("--format focus needs --currency CODE: FOCUS has no cost without a currency")
    if config.state_file and (config.month or config.first or config.last):
        raise ConfigError("--state-file cannot be used with a period: it has totals since the ledger began")
