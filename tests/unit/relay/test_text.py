"""What of a text is kept: every attack on the scrape by one line, judged by the parsers of scrapers."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gputally.relay import text as limits
from gputally.relay.relabel import render
from tests.support.text_format import check_text
from tests.unit.relay.dcgm_texts import NEW, NEWEST, OLD
from tests.unit.relay.texts import label_values_of, parsed, rendered, sample_lines

GOOD = "good 1\n"
KEPT = "# TYPE good untyped\ngood 1\n"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# anything at all",
        "#",
        "# HELPER is no keyword",
        "# HELP a",
        "# HELP a  back\\\\slash",
        "# TYPE a gauge",
        "#\tTYPE a counter",
        "# UNIT a joules",
        "# EOF",
        "a 1",
        "a:b_c 1 1731753600125",
        "a{} .5",
        "a -1.e-7",
        "a -inf",
        "a nan",
        'a { gpu = "0" , } 1',
        '\ta{gpu="0" , pod = "", x="y"}\t1  ',
        'a{gpu="0"}NaN 1731753600125',
        r'a{b="say \"hi\", \\ \n"} 1',
        'a{b="} 1 # {"} 1',
        'a{b="größer"} 1',
    ],
)
def test_valid_lines(line: str) -> None:
    read = parsed(line)
    assert (read.invalid, read.samples) == (0, int("a" in line and not line.startswith("#")))
    check_text(rendered(line).encode())


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a N/A",
        "a 1 2 3",
        "a 1 later",
        "a 1 -5",
        "a 1 1.5",
        "a 1\r",
        "a1",
        "1a 1",
        "a-b 1",
        "a +nan",
        "a nan(1)",
        "a 1_000",
        "a 0x1p3",
        "a 1e999999",
        "a -1e309",
        f"a 1{'0' * 400}",
        "a 1 12345678901234567890123",
        "a 1 9223372036854775808",
        f"a 1 {'1' * 5000}",
        'a{b="c" 1',
        'a{b="c} 1',
        'a{b="c"d="e"} 1',
        'a{b="c",,d="e"} 1',
        "a{,} 1",
        "a{b='c'} 1",
        'a{b="the "best" card"} 1',
        'a{b="c\\"} 1',
        'a{b:c="d"} 1',
        'a{b="c",b="d"} 1',
        'a{b="",b="d"} 1',
        'a{__name__="b"} 1',
        'a{__address__="b"} 1',
        '{"a",b="c"} 1',
        '{__name__="a"} 1',
        'a{b="\0"} 1',
        "a\0 1",
        'a 1 # {b="c"} 1',
        "# TYPE a",
        "# TYPE a gouge",
        "# TYPE a info",
        "# HELP",
        "# HELP a nul\0",
        "# HELP 1a b",
        "<html>",
        f'a{{b="{"x" * limits.MAX_LINE_BYTES}"}} 1',
        "gputally_pod_energy_joules_total 5",
        '\t gputally_pod_energy_joules_total{pod="victim"} 5',
    ],
)
def test_invalid_lines_are_dropped_and_counted_and_the_rest_is_kept(line: str) -> None:
    read = parsed(f"{line}\n{GOOD}")
    assert (read.invalid, read.first_invalid, read.samples) == (1, 1, 1)
    assert rendered(f"{line}\n{GOOD}") == KEPT
    assert parsed(f"{GOOD}{line}").invalid == 1


@pytest.mark.parametrize("byte", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80"])
@pytest.mark.parametrize("line", [b'a{b="%b"} 1\n', b"# HELP a %b\n"])
def test_invalid_utf8(byte: bytes, line: bytes) -> None:
    assert (parsed(line % byte).invalid, rendered(line % byte + GOOD.encode())) == (1, KEPT)


@pytest.mark.parametrize(
    "line",
    [
        "a 1 1e999",
        "a 1 9223372036854775.9",
        "a 1 -1",
        "a 1 nan",
        "a 1e999999",
        'a{b="c",b="d"} 1',
        "# TYPE a untyped",
        'a 1 # {b="\n"} 1',
    ],
)
def test_invalid_lines_of_openmetrics(line: str) -> None:
    assert parsed(line, openmetrics=True).invalid >= 1
    assert rendered(f"{line}\n{GOOD}# EOF\n", openmetrics=True) == KEPT


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('a_total{gpu="0"} 1 # {id="} 1 # {gpu=\\"1\\"}",pod=""} 0.5', 'a_total{gpu="0"} 1'),
        ("a 1 1731753600.125", "a 1 1731753600125"),
        ("a 1 1731753600", "a 1 1731753600000"),
        ("# EOF\na 1", "a 1"),
        ('a 1 # {b="\xff"} 1', "a 1"),
    ],
)
def test_openmetrics_samples(line: str, expected: str) -> None:
    assert rendered(line, openmetrics=True).splitlines()[1:] == [expected]


@pytest.mark.parametrize(
    "pair",
    [
        "a 1\na 2\n",
        'a{b="c",d="e"} 1\na{d="e",b="c"} 2\n',
        'a{b="c"} 1\n a { b = "c" , } 2\n',
        'a{b="c",d=""} 1\na{b="c"} 2\n',
        'a 1\na{b=""} 2\n',
        "a 1 5\na 2 6\n",
        r'a{b="\d"} 1' + "\n" + r'a{b="\\d"} 2' + "\n",
    ],
)
def test_the_first_sample_of_a_series_is_kept(pair: str) -> None:
    read = parsed(pair)
    assert (read.samples, read.duplicates) == (1, 1)
    assert re.search(r" 1( 5)?$", rendered(pair))


def test_interleaved_families_become_whole() -> None:
    text = '# TYPE a gauge\na{x="1"} 1\nb 1\na{x="2"} 2\n# HELP a A.\nb{y="1"} 3\n'
    assert rendered(text) == (
        '# HELP a A.\n# TYPE a gauge\na{x="1"} 1\na{x="2"} 2\n# TYPE b untyped\nb 1\nb{y="1"} 3\n'
    )


def test_the_first_help_and_type_are_kept_and_others_counted() -> None:
    text = "# HELP a A.\n# TYPE a gauge\na 1\n# HELP a B.\n# TYPE a counter\n# TYPE a gauge\n"
    assert parsed(text).invalid == 2
    assert rendered(text) == "# HELP a A.\n# TYPE a gauge\na 1\n"


def test_help_is_escaped_as_the_text_format_has_it() -> None:
    line = r"# HELP a say \"hi\"\n to \\ and \d" + "\na 1\n"
    assert rendered(line).splitlines()[0] == r'# HELP a say \\"hi\\"\n to \\ and \\d'
    assert rendered(line, openmetrics=True).splitlines()[0] == r'# HELP a say "hi"\n to \\ and \\d'


HISTOGRAM = """\
# TYPE h histogram
h_bucket{le="not a number"} 1
h_bucket{le="1"} 7
h_bucket{le="0.5"} NaN
h 5
h_count -3
# TYPE h_sum gauge
h_sum 1
# TYPE s summary
s{quantile="no"} 1
s 1
s_sum 1
"""


def test_histograms_and_summaries_become_untyped_series_that_no_parser_judges_as_a_whole() -> None:
    text = rendered(HISTOGRAM)
    check_text(text.encode())
    assert parsed(HISTOGRAM).samples == 9
    assert text.count("untyped") == 5


def test_creation_times_of_openmetrics_counters_are_left_out() -> None:
    text = "# TYPE a counter\na_total 1\na_created 1.7e9\n# TYPE b_created gauge\nb_created 1\n# EOF\n"
    assert rendered(text, openmetrics=True) == (
        "# TYPE a_total counter\na_total 1\n# TYPE b_created gauge\nb_created 1\n"
    )


@pytest.mark.parametrize(
    ("line", "limit", "cut"),
    [
        (lambda _: "\n", limits.MAX_LINES + 1, "50,000 lines"),
        (lambda n: f"a{n} 1\n", limits.MAX_SAMPLES + 1, "10,000 samples"),
        (lambda _: f"a 1{' ' * 16_000}\n", limits.MAX_BYTES // 16_000 + 1, "4 MiB"),
    ],
)
def test_what_exceeds_a_limit_is_dropped(line: Callable[[int], str], limit: int, cut: str) -> None:
    whole = "".join(map(line, range(limit - 1)))
    assert parsed(whole).cut == ""
    read = parsed(whole + line(limit) * 2)
    assert read.cut == cut
    assert read.samples <= limits.MAX_SAMPLES


def test_metadata_without_samples_has_a_limit() -> None:
    lines = (f"# TYPE a{n} gauge\n" for n in range(limits.MAX_METADATA + 7))
    assert parsed("".join(lines)).invalid == 7


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_of_any_size_are_the_same_text(size: int) -> None:
    for text in (OLD, NEW, NEWEST):
        whole = text.encode()
        read = limits.Text()
        read.add((whole[at : at + size] for at in range(0, len(whole), size)), openmetrics=False)
        assert b"".join(one for _, one in render(read.families(), lambda _: None)).decode() == rendered(text)


lines = st.lists(
    sample_lines
    | st.sampled_from(["# HELP x y\n", "# TYPE x gauge\n", "# TYPE x_y summary\n", "x_y_sum 1\n", "\n"])
)


def series_of(text: str) -> list[tuple[str, frozenset[tuple[str, str]]]]:
    return [
        (sample.name, frozenset(label_values_of(sample).items()))
        for family in parse_text(text)
        for sample in family.samples
    ]


@given(lines)
def test_valid_text_loses_no_series(texts: list[str]) -> None:
    text = "".join(texts)
    read = parsed(text)
    assert read.invalid == 0
    kept = series_of(rendered(text))
    assert set(kept) == set(series_of(text))
    assert len(kept) + read.duplicates == sum(not line.startswith(("#", "\n")) for line in texts)


@given(st.lists(st.binary(max_size=30) | sample_lines.map(str.encode)), st.booleans())
def test_whatever_comes_in_what_goes_out_can_be_read_again_unchanged(
    texts: list[bytes], openmetrics: bool
) -> None:
    text = b"\n".join(texts)
    once = rendered(text, openmetrics=openmetrics)
    again = parsed(once)
    assert (again.invalid, again.duplicates) == (0, 0)
    assert rendered(once) == once
    check_text(once.encode())
