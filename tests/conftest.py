"""What all tests share."""

import pytest
from hypothesis import settings

# The machine may be busy with a build: how long an example takes says nothing about the code.
settings.register_profile("gputally", deadline=None)
settings.load_profile("gputally")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files, then compare")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
