"""Any bytes, as requests and as a web configuration: what `tests/support/fuzz_targets` promises."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz_targets import http_request, web_config


def damaged(corpus: list[bytes]) -> st.SearchStrategy[bytes]:
    """Words of the corpus in any order, entries of it with some bytes replaced, and arbitrary bytes."""
    words = sorted({word for entry in corpus for word in re.findall(rb"\w+|\W", entry[:2000])})
    replaced = st.tuples(
        st.sampled_from(corpus), st.integers(0, 200), st.integers(0, 20), st.binary(max_size=10)
    ).map(lambda one: one[0][: one[1]] + one[3] + one[0][one[1] + one[2] :])
    return st.one_of(
        replaced, st.lists(st.sampled_from(words), max_size=60).map(b"".join), st.binary(max_size=300)
    )


@pytest.mark.parametrize("data", http_request.CORPUS)
def test_known_hostile_requests_get_http_or_a_close(data: bytes) -> None:
    http_request.one_input(data)


@settings(deadline=None)
@given(damaged(http_request.CORPUS))
def test_any_bytes_get_http_or_a_close(data: bytes) -> None:
    http_request.one_input(data)


@pytest.mark.parametrize("data", web_config.CORPUS)
def test_known_hostile_files_are_a_configuration_or_an_error_of_one_line(data: bytes) -> None:
    web_config.one_input(data)


@settings(deadline=None)
@given(damaged(web_config.CORPUS))
def test_any_file_is_a_configuration_or_an_error_of_one_line(data: bytes) -> None:
    web_config.one_input(data)
