"""`gputally bill`: what each namespace, team, workload, model, node or pod used, and what it cost."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from gputally.commands.bill import seal, state
from gputally.commands.bill.delivery import BadWebhook, bill_before, file_name, post, write
from gputally.commands.bill.formats import FORMATS
from gputally.commands.bill.model import Bill
from gputally.commands.bill.progress import progress_bar
from gputally.commands.bill.read import NoRecords, Store, read_bill
from gputally.commands.bill.seal import Chain, NotSealed
from gputally.commands.bill.settings import SETTINGS, BillConfig, read_settings
from gputally.commands.bill.teams import Teams, TeamsError, read_teams
from gputally.commands.command_line import OneLineParser, add_flags
from gputally.commands.servers import PrometheusApi, RemoteServer, RequestFailed, read_login
from gputally.files import read_regular
from gputally.flags import ConfigError
from gputally.ledger.state_file import Rejected
from gputally.model import Unavailable
from gputally.printable import print_lines

_MOST_BYTES = 64 << 20


def run(arguments: Sequence[str], out: TextIO, *, clock: Callable[[], float] = time.time) -> int:
    """The exit status: 0 for a bill, 1 if there is none or it was changed, 2 for wrong flags."""
    try:
        config = read_settings(_parser().parse_args(arguments))
        if config.verify:
            return _verify(config.verify, config.previous, out)
        _deliver(_bill(config, clock), config, out)
    except (ConfigError, TeamsError, BadWebhook) as error:
        print_lines([f"gputally bill: {error} (try gputally bill --help)"], sys.stderr)
        return 2
    except (RequestFailed, NoRecords, NotSealed, Unavailable, OSError) as error:
        print_lines([f"gputally bill: {_reason(error)}"], sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="gputally bill",
        description="Prints a bill: for each namespace, team, workload, model, node or pod the GPU-hours, "
        "energy, CO2 and cost of a period, and what no owner is charged for. The rows add up to the energy "
        "meters of the GPUs. It reads the records of GPUTally's rules from Prometheus, or from any store "
        "with its API. Each flag can also be set by the environment variable in [brackets].",
        epilog="Examples: `gputally bill --prometheus http://localhost:9090 --month 2026-10`; `... --by team "
        "--teams teams.yaml --format html --output october.html`; `... --format json --seal --previous "
        "september.json --output october.json`, then `gputally bill --verify october.json`. Exits with 0 if "
        "there is a bill, else with 1.",
    )
    add_flags(parser, SETTINGS)
    return parser


def _bill(config: BillConfig, clock: Callable[[], float]) -> Bill:
    teams = read_teams(config.teams) if config.teams else None
    if config.state_file:
        return _bill_of_state(config, config.state_file, teams)
    return read_bill(
        Store(PrometheusApi(_server(config), "", complete=True), config.cluster),
        config.period(clock()),
        by=config.by,
        cluster=config.cluster,
        currency=config.currency,
        source=f"records gputally_bill in {config.prometheus}",
        piece_hours=config.piece_hours,
        teams=teams,
        progress=progress_bar(sys.stderr),
    )


def _bill_of_state(config: BillConfig, path: Path, teams: Teams | None) -> Bill:
    if config.by not in state.GROUPINGS:
        raise ConfigError(
            f"--by: {config.by!r} is not allowed with --state-file; it takes {', '.join(state.GROUPINGS)}"
        )
    if teams is not None and teams.labels:
        raise ConfigError("--teams: podLabels cannot be used with --state-file: it has no labels of pods")
    try:
        return _read_state(config, path, teams)
    except Rejected as rejected:
        raise Unavailable(f"--state-file {path} {rejected}") from None


def _read_state(config: BillConfig, path: Path, teams: Teams | None) -> Bill:
    return state.read_state(
        path,
        by=config.by,
        zone=config.zone,
        currency=config.currency,
        gpu_hour_price=config.gpu_hour_price,
        kwh_price=config.kwh_price,
        teams=teams,
    )


def _server(config: BillConfig) -> RemoteServer:
    return RemoteServer(
        config.prometheus,
        read_login(config.login) if config.login else None,
        authority=config.authority,
        server_name=config.server_name,
        insecure=config.insecure,
        certificate=(config.certificate, config.key) if config.certificate and config.key else None,
        headers=_headers(config),
        timeout_seconds=config.timeout_seconds,
    )


def _headers(config: BillConfig) -> Mapping[str, str]:
    headers = {}
    for line in config.headers.read_text().splitlines() if config.headers else ():
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            # The line may be a secret.
            raise ConfigError("--prometheus-headers: a line is not allowed; it takes `Name: value`")
        if line.strip():
            headers[name.strip()] = value.strip()
    if config.token:
        headers["Authorization"] = f"Bearer {config.token.read_text().strip()}"
    return headers


def _deliver(bill: Bill, config: BillConfig, out: TextIO) -> None:
    name = file_name(bill, config.format)
    output, previous = config.output, config.previous
    if config.directory:
        output, previous = config.directory / name, bill_before(config.directory, name)
    chain = Chain(_last_seal(previous)) if config.seal else None
    text = FORMATS[config.format](bill, chain)
    text = seal.close(text) if chain else text
    write(text, output, out)
    if config.directory:
        print_lines([str(output)], out)
    if config.webhook:
        post(text, name, config.webhook, config.timeout_seconds)


def _last_seal(previous: Path | None) -> str:
    if previous is None:
        return ""
    verdict = _verdict(previous)
    if verdict.changed:
        raise NotSealed(f"--previous {previous} was changed: {', '.join(verdict.changed)}")
    return seal.mark_previous(verdict.seal)


def _verify(path: Path, previous: Path | None, out: TextIO) -> int:
    verdict = _verdict(path)
    print_lines(seal.report(verdict), out)
    status = 1 if verdict.changed else 0
    if previous:
        before = _verdict(previous)
        if before.changed or before.seal != verdict.previous:
            print_lines([f"changed: {path} does not continue {previous}"], out)
            return 1
        print_lines([f"ok: continues {previous}"], out)
    return status


def _verdict(path: Path) -> seal.Verdict:
    try:
        return seal.verify(read_regular(path, _MOST_BYTES).decode())
    except NotSealed as error:
        raise NotSealed(f"{path} {error}") from None
    except UnicodeDecodeError:
        raise NotSealed(f"{path} is not a bill: it is no UTF-8 text") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, Unavailable):
        return f"{error}; {error.fix}" if error.fix else str(error)
    return str(error)
