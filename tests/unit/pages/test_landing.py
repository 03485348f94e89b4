from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gputally.model import Gpu, MigInstance, MigReading, Reading, Snapshot, SourceState
from gputally.pages.landing import render_landing

NOW = 1_700_000_000.0
VOID = {"meta", "br", "link", "img"}


class Outline(HTMLParser):
    """The words of a page, its links, and whether every element is closed."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name == "href" and value is not None]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and data.strip():
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.words).replace("\xa0", " ")


def gpu(index: int = 0, **facts: object) -> Gpu:
    known = {"uuid": f"GPU-{index}", "index": index, "vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3"}
    return Gpu(**(known | facts))  # type: ignore[arg-type]


def snapshot(*readings: Reading, sources: tuple[SourceState, ...] | None = None, age: float = 0) -> Snapshot:
    if sources is None:
        sources = (SourceState(name="nvml", up=True, gpus=len(readings), last_success_seconds=NOW - 2),)
    return Snapshot(taken_at_seconds=NOW - 2, age_seconds=age, readings=readings, sources=sources)


def outline(shown: Snapshot, hostname: str = "gpu-node-7", metrics_path: str = "/metrics") -> Outline:
    page = render_landing(
        shown, version="1.2.3", hostname=hostname, metrics_path=metrics_path, now_seconds=NOW
    )
    read = Outline(page)
    assert read.open == []
    return read


def test_a_healthy_host_shows_its_gpus_and_the_address_of_metrics() -> None:
    busy = Reading(
        gpu=gpu(3),
        gpu_utilization_ratio=0.97,
        memory_used_bytes=60 * 1024**3,
        memory_total_bytes=80 * 1024**3,
        power_watts=611.4,
        power_limit_watts=700.0,
        temperature_celsius=64.0,
    )
    page = outline(snapshot(busy))
    for expected in (
        "gpu-node-7",
        "1.2.3",
        "1 GPU up",
        "NVIDIA H100 80GB HBM3",
        "GPU-3",
        "97 %",
        "60.0 of 80 GiB",
        "611 of 700 W",
        "64 °C",
        "snapshot 2 s old",
    ):
        assert expected in page.text
    assert page.links == ["/metrics", "/healthz", "/readyz"]
    assert "simulated" not in page.text


def test_unsupported_values_are_dashes_and_zero_is_0() -> None:
    page = outline(snapshot(Reading(gpu=gpu(), gpu_utilization_ratio=0.0)))
    assert "0 %" in page.text
    assert "\N{EN DASH}" in page.text
    assert "W" not in page.words
    assert "None" not in page.text


def test_a_simulated_gpu_is_marked() -> None:
    assert "simulated" in outline(snapshot(Reading(gpu=gpu(simulated=True)))).text


def test_a_lost_gpu_is_named_at_the_top() -> None:
    page = outline(snapshot(Reading(gpu=gpu(0)), Reading(gpu=gpu(1), up=False)))
    assert "1 of 2 GPUs lost" in page.text
    assert page.text.index("GPU 1 (GPU-1) is lost") < page.text.index("Sources")


def test_a_failing_source_has_its_reason_and_fix() -> None:
    down = SourceState(name="nvml", up=False, reason="driver not loaded", fix="modprobe nvidia", failures=7)
    page = outline(snapshot(sources=(down,)))
    for expected in ("a source is down", "nvml: driver not loaded", "modprobe nvidia", "7", "never"):
        assert expected in page.text


def test_before_the_first_sample_the_page_is_pending() -> None:
    page = outline(snapshot(sources=()))
    assert "first sample" in page.text


def test_a_host_without_gpus() -> None:
    assert "no GPU found" in outline(snapshot()).text


def test_mig_instances_are_below_their_gpu() -> None:
    instance = MigInstance("MIG-abc", "GPU-0", 0, 1, 0, "1g.10gb")
    mig = MigReading(instance=instance, memory_used_bytes=1024**3, memory_total_bytes=10 * 1024**3)
    page = outline(snapshot(Reading(gpu=gpu(0), mig=(mig,)), Reading(gpu=gpu(1))))
    assert page.text.index("GPU-0") < page.text.index("MIG 1g.10gb MIG-abc") < page.text.index("GPU-1")


def test_partitions_of_an_amd_gpu_have_their_name_and_vendors_are_grouped() -> None:
    instance = MigInstance("GPU-0-3", "GPU-0", 0, 3, 0, "CPX/NPS4")
    part = MigReading(instance=instance, graphics_active_ratio=0.42)
    readings = (
        Reading(gpu=gpu(0)),
        Reading(gpu=gpu(1)),
        Reading(gpu=Gpu("AMD-0", 0, "amd", "MI300X"), mig=(part,)),
    )
    page = outline(snapshot(*readings))
    assert "Partition 3 CPX/NPS4 GPU-0-3 42" in " ".join(page.text.split())
    assert page.text.index("AMD-0") < page.text.index("GPU-0") < page.text.index("GPU-1")


def test_a_gpu_at_its_slowdown_temperature_is_highlighted() -> None:
    def page(celsius: float) -> bytes:
        hot = Reading(gpu=gpu(), temperature_celsius=celsius, temperature_slowdown_celsius=87)
        return render_landing(snapshot(hot), version="1", hostname="h", metrics_path="/metrics")

    assert b'class="hot"' in page(87)
    assert b'class="hot"' not in page(86)


def test_an_old_snapshot_shows_its_age() -> None:
    assert "snapshot 10 min old" in outline(snapshot(age=598)).text


ANYTHING = st.text(max_size=40)
HOSTILE = st.sampled_from(["<script>alert(1)</script>", '"><img src=x>', "</style>", "&lt;", "'\"", "\ud800"])


@given(st.one_of(ANYTHING, HOSTILE), st.one_of(ANYTHING, HOSTILE), st.one_of(ANYTHING, HOSTILE))
def test_values_are_escaped(one: str, two: str, three: str) -> None:
    reading = Reading(gpu=gpu(model=one, uuid=two), up=False)
    source = SourceState(name=one, up=False, reason=two, fix=three)
    page = outline(snapshot(reading, sources=(source,)), hostname=three, metrics_path=f"/{one}")
    assert not page.tags & {"script", "img", "iframe", "object"}
    assert len(page.links) == 3
