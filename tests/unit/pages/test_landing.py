from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gputally.pages.landing import render_landing

ASSETS = {name: f"{name}?1" for name in ("live.svg", "live.css", "live.js")}
VOID = {"meta", "link"}


class Outline(HTMLParser):
    """The words of a page, its links, and whether every element is closed."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value is not None]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def outline(
    hostname: str = "gpu-node-7", metrics_path: str = "/metrics", assets: dict[str, str] = ASSETS
) -> Outline:
    read = Outline(
        render_landing(version="1.2.3", hostname=hostname, metrics_path=metrics_path, assets=assets)
    )
    assert read.open == []
    return read


def test_it_names_host_and_version_and_links_to_the_endpoints() -> None:
    page = outline()
    assert {"gpu-node-7", "1.2.3"} <= set(page.words)
    assert page.links == ["./metrics", "./healthz", "./readyz", "./api/v1/snapshot"]


def test_links_are_relative_for_proxies_that_serve_the_page_below_a_path() -> None:
    assert all(link.startswith("./") for link in outline(metrics_path="/other").links)


def test_without_the_live_page_there_is_no_script() -> None:
    page = outline(assets={})
    assert "script" not in page.tags
    assert page.links == ["./metrics", "./healthz", "./readyz"]


ANYTHING = st.text(max_size=40)
HOSTILE = st.sampled_from(["<script>alert(1)</script>", '"><img src=x>', "</title>", "&lt;", "'\"", "\ud800"])


@given(st.one_of(ANYTHING, HOSTILE), st.one_of(ANYTHING, HOSTILE))
def test_values_are_escaped(hostname: str, path: str) -> None:
    page = outline(hostname=hostname, metrics_path=f"/{path}")
    assert page.tags == outline().tags
    assert len(page.links) == 4
