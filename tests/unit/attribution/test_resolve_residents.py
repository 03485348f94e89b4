"""Every process since the last look, each under its own owner: also those that ended, and pids used again."""

from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import FoundOwner
from gputally.attribution.resolve import list_residents
from gputally.model import (
    AccountedProcess,
    Gpu,
    MigInstance,
    MigReading,
    Owner,
    Process,
    ProcessSample,
    Reading,
    Resident,
    Unknown,
)

GPU = Gpu("GPU-a", 0, "NVIDIA", "H100")
OLD = Owner("pod", namespace="team", pod="old", container="main")
NEW = Owner("pod", namespace="team", pod="new", container="main")
BEGAN = 1000.0


def sample(pid: int, at: float, covers_us: int = 1_000_000) -> ProcessSample:
    return ProcessSample(pid, round(at * 1e6), 0.5, 0.0, 0.0, 0.0, covers_us)


def reading(*processes: Process, samples: tuple[ProcessSample, ...] | None = (), **more: object) -> Reading:
    return Reading(gpu=GPU, processes=processes, process_samples=samples, **more)  # type: ignore[arg-type]


def short(residents: tuple[Resident, ...]) -> list[tuple[int, Owner | Unknown, int | None, bool]]:
    return [
        (one.process.pid, one.owner, None if one.samples is None else len(one.samples), one.ended)
        for one in residents
    ]


def test_a_listed_process_has_its_samples_and_start_time() -> None:
    process = Process(7, "compute", "python", 5)
    samples = (sample(7, 1001), sample(8, 1001), sample(7, 1002))
    found = {7: FoundOwner(OLD, BEGAN), 8: FoundOwner(NEW, BEGAN)}
    one, other = list_residents([reading(process, samples=samples)], found)
    assert one == Resident(0, "GPU-a", process, OLD, (samples[0], samples[2]), BEGAN)
    assert (other.process, other.owner, other.ended) == (Process(8, "ended", memory_used_bytes=0), NEW, True)


def test_an_idle_process_has_empty_samples_and_an_unsampled_one_none() -> None:
    process = Process(7, "compute")
    found = {7: FoundOwner(OLD, BEGAN)}
    assert short(list_residents([reading(process)], found)) == [(7, OLD, 0, False)]
    assert short(list_residents([reading(process, samples=None)], found)) == [(7, OLD, None, False)]


def test_a_process_that_was_not_found_exited_before_the_lookup() -> None:
    residents = list_residents([reading(samples=(sample(7, 1001),))], {})
    assert short(residents) == [(7, Unknown("exited"), 1, True)]


def test_a_process_on_a_mig_device_belongs_to_the_device_and_has_no_samples() -> None:
    instance = MigReading(instance=MigInstance("MIG-1", "GPU-a", 0, 1, 0), processes=(Process(7, "compute"),))
    [one] = list_residents([reading(samples=None, mig=(instance,))], {7: FoundOwner(OLD, BEGAN)})
    assert (one.uuid, one.gpu_index, one.owner, one.samples) == ("MIG-1", 0, OLD, None)


# A pid that another process has now.


def test_samples_before_the_start_of_a_process_belong_to_the_previous_owner() -> None:
    samples = (sample(7, BEGAN - 4), sample(7, BEGAN - 3), sample(7, BEGAN + 1))
    found = {7: FoundOwner(NEW, BEGAN, new=True, former=OLD)}
    former, now = list_residents([reading(Process(7, "compute"), samples=samples)], found)
    assert (former.owner, former.samples, former.ended) == (OLD, samples[:2], True)
    assert (former.process.memory_used_bytes, former.started_at_seconds) == (0, None)
    assert (now.owner, now.samples, now.ended, now.started_at_seconds) == (NEW, samples[2:], False, BEGAN)


def test_samples_before_the_start_are_unattributed_if_the_previous_owner_was_unknown() -> None:
    found = {7: FoundOwner(NEW, BEGAN, new=True)}
    residents = list_residents([reading(Process(7, "compute"), samples=(sample(7, BEGAN - 3),))], found)
    assert short(residents) == [(7, Unknown("exited"), 1, True), (7, NEW, 0, False)]


def test_an_exited_process_without_a_sample_is_omitted() -> None:
    found = {7: FoundOwner(NEW, BEGAN, new=True, former=OLD)}
    residents = list_residents([reading(samples=(sample(7, BEGAN - 3),))], found)
    assert short(residents) == [(7, OLD, 1, True)]


def test_a_difference_of_two_seconds_between_kernel_and_driver_clock_is_tolerated() -> None:
    found = {7: FoundOwner(NEW, BEGAN, new=True, former=OLD)}
    residents = list_residents([reading(Process(7, "compute"), samples=(sample(7, BEGAN - 2),))], found)
    assert short(residents) == [(7, NEW, 1, False)]


def test_a_process_known_from_the_last_sample_keeps_all_its_samples() -> None:
    found = {7: FoundOwner(NEW, BEGAN)}
    residents = list_residents([reading(Process(7, "compute"), samples=(sample(7, BEGAN - 9),))], found)
    assert short(residents) == [(7, NEW, 1, False)]


@given(
    st.lists(st.floats(900, 1100), max_size=8),
    st.floats(900, 1100) | st.none(),
    st.booleans(),
    st.sampled_from([OLD, Unknown("zombie"), None]),
    st.booleans(),
)
def test_every_sample_is_attributed_once_and_no_early_one_to_the_new_owner(
    stamps: list[float], began: float | None, new: bool, former: Owner | Unknown | None, listed: bool
) -> None:
    samples = tuple(sample(7, at) for at in stamps)
    processes = (Process(7, "compute"),) if listed else ()
    found = {7: FoundOwner(NEW, began, new, former)}
    residents = list_residents([reading(*processes, samples=samples)], found)
    told = [one for resident in residents for one in resident.samples or ()]
    assert sorted(told, key=id) == sorted(samples, key=id)
    assert sum(not resident.ended for resident in residents) == listed
    if new and began is not None:
        early = {id(one) for one in samples if one.timestamp_us < (began - 2) * 1e6 - 1}
        for resident in residents:
            if resident.owner == NEW:
                assert not early & {id(one) for one in resident.samples or ()}


# The driver's accounting.


def accounted(pid: int, began: float, ran: float = 2.0) -> AccountedProcess:
    return AccountedProcess(pid, round(began * 1e6), round(ran * 1e6), 0.25, 64)


def test_a_process_between_two_samples_is_known_from_accounting() -> None:
    [one] = list_residents(
        [reading(accounted=(accounted(7, BEGAN),))], {7: FoundOwner(OLD, BEGAN)}, since_seconds=BEGAN - 1
    )
    assert (one.owner, one.ended, one.started_at_seconds) == (OLD, True, BEGAN)
    assert one.process == Process(7, "ended", memory_used_bytes=64)
    assert one.samples == (ProcessSample(7, 1_002_000_000, 0.25, None, None, None, 2_000_000),)


def test_accounted_time_that_was_sampled_is_not_counted_twice() -> None:
    found = {7: FoundOwner(OLD, BEGAN)}
    ended = (accounted(7, BEGAN),)
    sampled = reading(samples=(sample(7, BEGAN + 1),), accounted=ended)
    assert len(list_residents([sampled], found, since_seconds=BEGAN - 1)) == 1
    assert list_residents([reading(accounted=ended)], found, since_seconds=BEGAN + 1) == ()
    assert list_residents([reading(accounted=ended)], found, since_seconds=None) == ()


def test_an_accounted_process_whose_pid_was_reused_belongs_to_the_previous_owner() -> None:
    ended = [reading(accounted=(accounted(7, BEGAN),))]
    known = list_residents(ended, {7: FoundOwner(NEW, BEGAN + 5, True, OLD)}, since_seconds=BEGAN - 1)
    assert short(known) == [(7, OLD, 1, True)]
    unknown = list_residents(ended, {7: FoundOwner(NEW, BEGAN + 5, True)}, since_seconds=BEGAN - 1)
    assert short(unknown) == [(7, Unknown("exited"), 1, True)]
