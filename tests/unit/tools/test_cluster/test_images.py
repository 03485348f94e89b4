"""Images are made again when what they are made of changes, and pip's settings stay outside of them."""

import configparser
from pathlib import Path

import pytest

from tools.test_cluster import images
from tools.test_cluster.images import Image


@pytest.fixture
def dockerfile(tmp_path: Path) -> Path:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM scratch\n")
    return file


def test_any_change_of_an_image_gives_another_image(dockerfile: Path, tmp_path: Path) -> None:
    base = Image("base:1", dockerfile, tmp_path, ("kit-1",))
    others = [
        base,
        Image("base:2", dockerfile, tmp_path, ("kit-1",)),
        Image("base:1", dockerfile, tmp_path, ("kit-2",)),
        Image("base:1", dockerfile, tmp_path, ("kit-1",), base),
        Image("base:1", dockerfile, tmp_path, ("kit-1",), arguments=("A=1",)),
    ]
    on_another_base = Image("base:1", dockerfile, tmp_path, ("kit-1",), others[1])
    before = {image.key for image in [*others, on_another_base]}
    assert len(before) == 6

    dockerfile.write_text("FROM scratch\nUSER 1\n")

    assert base.key not in before


def test_an_image_is_found_by_its_name_and_key(dockerfile: Path, tmp_path: Path) -> None:
    image = Image("prom/prometheus:v3", dockerfile, tmp_path, ())
    assert image.archive.name == f"prom-prometheus-v3-{image.key}.tar"


def test_pip_settings_come_from_files_and_variables_with_precedence_for_variables() -> None:
    shown = (
        ":env:.index-url='https://variable.example/simple'\n"
        "global.cert='/etc/ssl/ca.pem'\n"
        "global.index-url='https://file.example/simple'\n"
        "install.no-deps='true'\n"
    )

    settings = images.parse_pip_settings(shown)

    assert settings == {"index-url": "https://variable.example/simple", "cert": "/etc/ssl/ca.pem"}


def test_several_values_of_one_setting_are_kept() -> None:
    text = images.pip_file({"find-links": "/a\n/b", "timeout": "60"})

    read = configparser.ConfigParser()
    read.read_string(text)
    assert read["global"]["find-links"].split() == ["/a", "/b"]
    assert read["global"]["timeout"] == "60"


def test_every_file_of_the_exporter_is_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copied = ("exporter/gputally/a.py", "pyproject.toml", "packaging/image/requirements.txt", ".dockerignore")
    for name in (*copied, "tools/other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(images, "ROOT", tmp_path)
    first = set(images._exporter_parts())
    assert {part.split()[0] for part in first} == set(copied)

    (tmp_path / "exporter/gputally/a.py").write_text("2")

    assert len(first & set(images._exporter_parts())) == len(copied) - 1
