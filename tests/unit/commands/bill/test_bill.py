"""`gputally bill` from the command line to the store, by HTTP, and back."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gputally.commands.bill import run
from tests.support.bill_store import BillStore, bill_store
from tests.support.bills import DAY, MINUTE, START, add_minute
from tests.support.fake_servers import site

NOW = START + 40 * DAY
TWO_HOURS = ("--from", "2026-10-01", "--to", "2026-10-01T02:00")


def two_hours(**labels: str) -> BillStore:
    store = BillStore()
    for minute in range(120):
        add_minute(store, minute, **labels)  # type: ignore[arg-type]
    return store


def billed(store: BillStore, *flags: str, period: tuple[str, ...] = TWO_HOURS) -> dict[str, Any]:
    out = io.StringIO()
    with bill_store(store) as served:
        status = run(
            ["--prometheus", served.url, "--format", "json", *period, *flags], out, clock=lambda: NOW
        )
    assert status == 0
    bill: dict[str, Any] = json.loads(out.getvalue())
    return bill


def failing(store: BillStore, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    with bill_store(store) as served:
        status = run(["--prometheus", served.url, *TWO_HOURS, *flags], io.StringIO(), clock=lambda: NOW)
    return status, capsys.readouterr().err


def rows(bill: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["key"]: row for row in bill["rows"]}


def test_each_joule_second_and_cent_is_in_one_row_and_the_rows_are_the_meter() -> None:
    bill = billed(two_hours())
    team = rows(bill)["team-0"]
    assert team["energy_joules"] == 120 * 12_600.003
    assert (team["gpu_hours"], team["busy_gpu_hours"], team["idle_gpu_hours"]) == (2, 1, 1)
    assert (team["gpu_cost"], team["energy_cost"], team["cost"]) == (1.80, 0.06, 1.86)
    assert rows(bill)["free"]["gpu_hours"] == 4
    assert rows(bill)["idle"]["energy_joules"] == 120 * 6000
    assert bill["meter_joules"] == bill["total"]["energy_joules"] == 2 * 120 * 12_600.003 + 120 * 6000
    assert bill["difference_joules"] == 0
    assert bill["total"]["gpu_hours"] == 8
    assert bill["gaps"] == []


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("namespace", {"team-0", "team-1"}),
        ("workload", {"team-0/train-0", "team-1/train-1"}),
        ("pod", {"team-0/train-0-0", "team-1/train-1-0"}),
        ("node", {"gpu-1"}),
        ("model", {"H100"}),
    ],
)
def test_every_grouping_has_the_same_total(by: str, keys: set[str]) -> None:
    bill = billed(two_hours(), "--by", by)
    assert {row["key"] for row in bill["rows"] if row["kind"] == "owner"} == keys
    total = {name: bill["total"][name] for name in ("gpu_hours", "busy_gpu_hours", "energy_joules", "cost")}
    assert total == {"gpu_hours": 8, "busy_gpu_hours": 2, "energy_joules": 3_744_000.72, "cost": 7.35}


@pytest.mark.parametrize("left_closed", [False, True], ids=["Prometheus 3", "Prometheus 2"])
@pytest.mark.parametrize("hours", [1, 2, 24])
def test_a_sample_at_the_edge_of_a_piece_is_in_one_piece(hours: int, *, left_closed: bool) -> None:
    store = BillStore(left_closed=left_closed)
    for at in (START, START + 3600, START + 7200):
        for level in ("model", "node"):
            store.add(f"{level}:gputally_bill_meter:joules", at, 1000.0, node="a" if level == "node" else "")
        store.add("namespace:gputally_bill_energy:joules", at, 1000.0, namespace="a", basis="held")
        store.add("workload:gputally_bill_energy:joules", at, 1000.0, namespace="a", basis="held")
    bill = billed(store, "--piece", str(hours))
    assert (bill["meter_joules"], bill["total"]["energy_joules"]) == (2000, 2000)


def test_no_query_reads_more_than_a_piece() -> None:
    store = two_hours()
    billed(store, "--piece", "1")
    asked = [query["query"] for query, _ in store.asked]
    assert len([query for query in asked if "meter:joules" in query and "sum_over_time" in query]) == 2
    assert not any(f"[{2 * 3600 * 1000}ms]" in query for query in asked)
    assert all(query.get("step", "60") == "60" for query, _ in store.asked)


def test_one_cluster_is_billed_without_the_others() -> None:
    store = BillStore()
    for minute in range(120):
        add_minute(store, minute, cluster="west")
        add_minute(store, minute, cluster='ea"st', node="gpu-2", pods=1)
    assert billed(store, "--cluster", "west")["meter_joules"] == 3_744_000.72
    assert set(rows(billed(store, "--cluster", 'ea"st'))) == {"team-0", "free", "idle"}
    assert billed(store)["total"]["gpu_hours"] == 16


def test_times_without_records_are_named_with_what_becomes_of_them() -> None:
    store = BillStore()
    for minute in range(120):
        if not 30 <= minute < 40:
            add_minute(store, minute)
        if not 70 <= minute < 80 and not 30 <= minute < 40:
            add_minute(store, minute, node="gpu-2")
    gaps = billed(store)["gaps"]
    assert [(gap["kind"], gap["from"], gap["to"], gap["node"]) for gap in gaps] == [
        ("no data", "2026-10-01T00:30+00:00", "2026-10-01T00:40+00:00", None),
        ("no data", "2026-10-01T01:10+00:00", "2026-10-01T01:20+00:00", "gpu-2"),
    ]
    assert {gap["effect"] for gap in gaps} == {"billed with the minute after it"}


def test_a_period_that_begins_before_the_records_says_so() -> None:
    store = BillStore()
    for minute in range(60, 120):
        add_minute(store, minute)
    (gap,) = billed(store)["gaps"]
    assert (gap["from"], gap["to"]) == ("2026-10-01T00:00+00:00", "2026-10-01T01:00+00:00")
    assert gap["effect"] == "not billed"


def test_a_time_without_an_exporter_is_named() -> None:
    store = two_hours()
    for level in ("node", "model"):
        store.add(
            f"{level}:gputally_bill_time:seconds",
            START + 50 * MINUTE,
            120,
            state="unobserved",
            node="gpu-1" if level == "node" else "",
        )
    bill = billed(store)
    (gap,) = bill["gaps"]
    assert (gap["kind"], gap["from"], gap["to"], gap["node"]) == (
        "unobserved",
        "2026-10-01T00:49+00:00",
        "2026-10-01T00:50+00:00",
        "gpu-1",
    )
    assert rows(bill)["unobserved"]["gpu_hours"] == pytest.approx(120 / 3600, abs=1e-6)


def test_days_are_cut_at_midnight_of_the_time_zone() -> None:
    store = BillStore()
    for minute in range(-3 * 60, 3 * 60):
        add_minute(store, minute)
    period = ("--from", "2026-10-01", "--to", "2026-10-01T03:00", "--timezone", "Europe/Berlin")
    bill = billed(store, period=period)
    assert bill["from"] == "2026-10-01T00:00+02:00"
    assert bill["total"]["gpu_hours"] == 12


def test_owners_outside_kubernetes_have_rows() -> None:
    store = two_hours()
    for owner, cost in (("slurm/1", 5.0), ("docker/2", 1.0)):
        store.add("host:gputally_bill_gpu_cost:money", START + 90, cost, owner=owner, node="gpu-1")
    assert rows(billed(store))["outside Kubernetes"]["cost"] == 6
    assert rows(billed(store, "--by", "pod"))["slurm/1"]["cost"] == 5


def test_records_of_0_make_no_row() -> None:
    store = two_hours()
    store.add("model:gputally_bill_time:seconds", START + 90, 0, state="lost")
    store.add("namespace:gputally_bill_allocated:seconds", START + 90, 0, namespace="ended")
    assert not {"lost", "ended"} & set(rows(billed(store)))


def test_gpus_without_a_price_are_counted() -> None:
    store = two_hours()
    for level in ("node", "model"):
        store.add(f"{level}:gputally_bill_time:seconds", START + 90, 7200, model="T4", state="free")
    assert billed(store)["unpriced_gpu_hours"] == 2


def test_teams_are_namespaces_and_pod_labels(tmp_path: Path) -> None:
    file = tmp_path / "teams.yaml"
    file.write_text('teams: {vision: {namespaces: ["*-0"]}, nlp: {podLabels: {cost/centre: "7"}}}')
    store = two_hours()
    at = START + 90
    store.add("gputally_pod_info", at, 1, namespace="team-1", pod="train-1-0", label_cost_centre="7")
    store.add("gputally_pod_info", at, 1, namespace="team-0", pod="train-0-0", label_cost_centre="8")
    found = rows(billed(store, "--by", "team", "--teams", str(file)))
    assert set(found) == {"vision", "nlp", "free", "idle"}
    assert found["nlp"]["energy_joules"] == 120 * 12_600.003


def test_without_pod_labels_teams_need_no_records_of_pods(tmp_path: Path) -> None:
    file = tmp_path / "teams.yaml"
    file.write_text("teams: {vision: {namespaces: [team-0]}}")
    store = two_hours()
    found = rows(billed(store, "--by", "team", "--teams", str(file)))
    assert set(found) == {"vision", "(no team)", "free", "idle"}
    assert not any("pod:" in query["query"] for query, _ in store.asked)


def test_token_and_headers_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "headers").write_text("X-Scope-OrgID: gpu\n\n")
    store = two_hours()
    store.token = "s3cret"
    files = [str(tmp_path / name) for name in ("token", "headers")]
    billed(store, "--prometheus-token", files[0], "--prometheus-headers", files[1])
    assert {headers["x-scope-orgid"] for _, headers in store.asked} == {"gpu"}


def test_a_mounted_secret_has_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "headers").write_text("X-Scope-OrgID: gpu")
    store = two_hours()
    store.token = "s3cret"
    billed(store, "--prometheus-secret", str(tmp_path))
    assert {headers["x-scope-orgid"] for _, headers in store.asked} == {"gpu"}


def test_a_refused_login_is_one_line_without_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("wrong")
    store = two_hours()
    store.token = "s3cret"
    status, said = failing(store, capsys, "--prometheus-token", str(tmp_path / "token"))
    assert (status, said) == (1, "gputally bill: HTTP 401: login required\n")


@pytest.mark.parametrize("answer", [{"warnings": ["store-2 is down"]}, {"isPartial": True}])
def test_a_part_of_the_store_is_no_bill(
    answer: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    store = two_hours()
    store.answer = answer
    status, said = failing(store, capsys)
    assert status == 1
    assert "the answer is not complete" in said


def test_replicas_that_are_not_merged_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    store = BillStore()
    for replica in ("a", "b"):
        for level in ("node", "model"):
            store.add(
                f"{level}:gputally_bill_meter:joules", START + 60, 5, node="n", prometheus_replica=replica
            )
    status, said = failing(store, capsys)
    assert status == 1
    assert "does not merge replicas (prometheus_replica: a, b)" in said


def test_a_store_without_records_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(BillStore(), capsys)[0] == 1
    assert "install the rules" in failing(BillStore(), capsys)[1]
    assert "no records of cluster west" in failing(BillStore(), capsys, "--cluster", "west")[1]


def test_the_bill_replaces_its_file_and_verifies(tmp_path: Path) -> None:
    file, store = tmp_path / "bill.json", two_hours()
    billed_to = ("--prometheus", "", *TWO_HOURS, "--format", "json", "--seal", "--output", str(file))
    with bill_store(store) as served:
        flags = [served.url if flag == "" else flag for flag in billed_to]
        assert run(flags, io.StringIO(), clock=lambda: NOW) == 0
        second = [*flags[:-1], str(tmp_path / "second.json"), "--previous", str(file)]
        assert run(second, io.StringIO(), clock=lambda: NOW) == 0
    assert run(["--verify", str(file)], io.StringIO()) == 0
    continues = ["--verify", str(tmp_path / "second.json"), "--previous", str(file)]
    assert run(continues, io.StringIO()) == 0
    text = file.read_text()
    line = next(number for number, line in enumerate(text.splitlines(), 1) if '"team-0"' in line)
    file.write_text(text.replace('"cost": 1.86', '"cost": 1.76', 1))
    out = io.StringIO()
    assert run(["--verify", str(file)], out) == 1
    assert out.getvalue().startswith(f"changed: line {line}\n")
    assert run(continues, io.StringIO()) == 1


def test_a_directory_collects_bills_that_continue_each_other(tmp_path: Path) -> None:
    store, names = two_hours(), []
    for last in ("2026-10-02", "2026-10-03", "2026-10-03"):
        out = io.StringIO()
        with bill_store(store) as served:
            flags = ["--prometheus", served.url, "--format", "csv", "--seal", "--directory", str(tmp_path)]
            assert run([*flags, "--from", "2026-10-01", "--to", last], out, clock=lambda: NOW) == 0
        names.append(Path(out.getvalue().strip()).name)
    assert names[1:] == ["gpu-bill-namespace-2026-10-01-2026-10-03.csv"] * 2
    files = [str(tmp_path / name) for name in names]
    assert run(["--verify", files[1], "--previous", files[0]], io.StringIO()) == 0


def test_a_bill_is_posted_to_the_url_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("http://127.0.0.1:1/secret")
    with bill_store(two_hours()) as served, site({}) as receiver:
        (tmp_path / "url").write_text(f"{receiver.url}/hook?key=secret\n")
        flags = ["--prometheus", served.url, *TWO_HOURS, "--format", "html"]
        assert run([*flags, "--webhook", str(tmp_path / "url")], io.StringIO(), clock=lambda: NOW) == 0
        ((path, query, headers, body),) = receiver.posted
    assert (path, query) == ("/hook", {"key": "secret"})
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "gpu-bill-namespace-2026-10-01-2026-10-01.html" in headers["Content-Disposition"]
    assert body.startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/s3cret", "s3cret"])
def test_a_failing_webhook_does_not_show_its_url(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "url").write_text(url)
    status, said = failing(two_hours(), capsys, "--webhook", str(tmp_path / "url"))
    assert status in (1, 2)
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "set either --prometheus URL or --state-file FILE"),
        (
            ["--prometheus", "localhost:9090"],
            "--prometheus: 'localhost:9090' is not allowed; it takes http://",
        ),
        (
            ["--prometheus", "http://a", "--by", "cat"],
            "--by: 'cat' is not allowed; it takes one of namespace",
        ),
        (["--prometheus", "http://a", "--by", "team"], "--by team and --teams FILE are used together"),
        (["--prometheus", "http://a", "--seal"], "--seal: 'table' is not allowed as --format"),
        (["--prometheus", "http://a", "--format", "focus"], "--format focus needs --currency CODE"),
        (["--prometheus", "http://a", "--currency", "€"], "--currency: '€' is not allowed; it takes a code"),
        (["--prometheus", "http://a", "--month", "may"], "--month: 'may' is not allowed"),
        (["--prometheus", "http://a", "--piece", "48"], "--piece: '48' is not allowed"),
        (["--prometheus", "http://a", "--previous", "/dev/null"], "--previous: '/dev/null' is not allowed"),
    ],
)
def test_a_wrong_flag_is_one_line(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flags, io.StringIO(), clock=lambda: NOW) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gputally bill: {said}")
    assert error.count("\n") == 1
