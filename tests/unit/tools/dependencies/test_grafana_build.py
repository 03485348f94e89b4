"""Grafana's recipe, as far as it can be tried without building anything."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools import Failed
from tools.dependencies import grafana_build, programs, recipes
from tools.dependencies.progress import Work

MANIFEST: dict[str, Any] = {
    "name": "grafana",
    "scripts": {"postinstall": "husky install"},
    "workspaces": {"packages": ["packages/*"]},
    "dependencies": {"react": "18.2.0", "xlsx": "https://example.org/xlsx.tgz"},
    "devDependencies": {"webpack": "5.76.0", "jest": "29.3.1"},
    "resolutions": {"trim": "0.0.3"},
}


def script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def source_tree(directory: Path) -> Path:
    """As much of Grafana's repository as the recipe touches."""
    source = directory / "source"
    texts = {
        "package.json": json.dumps(MANIFEST),
        ".yarn/releases/yarn-3.4.1.cjs": "",
        "scripts/webpack/webpack.common.js": f"patterns: [\n{grafana_build.KUSTO_FILES}]\n",
        "conf/defaults.ini": "",
        "public/app/plugins/panel/stat/plugin.json": "{}",
        "public/app/plugins/panel/stat/module.tsx": "",
        "public/app/plugins/panel/stat/img/icon.svg": "",
        "public/app/plugins/panel/news/plugin.json": "{}",
        **{f"public/{name}/file": "" for name in grafana_build.SERVED},
    }
    for name in grafana_build.WORKSPACES:
        texts[f"packages/grafana-{name}/package.json"] = json.dumps(MANIFEST)
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    return source


def job(directory: Path) -> recipes.BuildJob:
    """A job whose tools write down what they are told, except that `go build` makes a file."""
    for name in ("into", "scratch", "tools"):
        (directory / name).mkdir()
    record = (
        f'echo "$(basename "$0") $*" >> {directory}/calls; env > {directory}/environment-of-$(basename "$0")'
    )
    make = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && mkdir -p "$(dirname "$2")" && touch "$2"; shift; done'
    script(directory / "tools" / "go", f"{record}; {make}")
    script(directory / "tools" / "node", record)
    script(directory / "tools" / "npm", "echo registry = https://npm.example/\necho cafile = null")
    return recipes.BuildJob(
        version="10.0.0",
        programs={"grafana": "home/bin/grafana"},
        settings={
            "module": "example.org/grafana@v1.2.3",
            "wire": "v0.7.0",
            "plugins_left_out": ["panel/news"],
        },
        into=directory / "into",
        scratch=directory / "scratch",
        shared=directory / "shared",
        work=Work("grafana", directory / "log", io.StringIO()),
        find=lambda name: directory / "tools" / name,
    )


def test_the_build_has_the_server_its_settings_and_pages_and_no_source(tmp_path: Path) -> None:
    grafana_build.build(job(tmp_path), source_tree(tmp_path), {"GOFLAGS": "-mod=mod"}, "2")
    home = tmp_path / "into" / "home"
    files = {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()}
    assert files == {
        "bin/grafana",
        "conf/defaults.ini",
        "public/app/plugins/panel/stat/plugin.json",
        "public/app/plugins/panel/stat/img/icon.svg",
        *(f"public/{name}/file" for name in grafana_build.SERVED),
    }


def test_the_program_is_a_link_into_its_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = source_tree(tmp_path)
    monkeypatch.setattr(recipes, "_go_module", lambda *_: module)
    recipes.grafana(job(tmp_path))
    program = tmp_path / "into" / "grafana"
    assert program.resolve() == tmp_path / "into" / "home" / "bin" / "grafana"
    assert json.loads((module / "package.json").read_text()) == MANIFEST


def test_the_server_is_generated_before_the_build_and_packages_before_the_pages(
    tmp_path: Path,
) -> None:
    grafana_build.build(job(tmp_path), source_tree(tmp_path), {"GOFLAGS": "-mod=mod"}, "2")
    wiring, server, packages, pages = (tmp_path / "calls").read_text().splitlines()
    assert "wire@v0.7.0 gen" in wiring
    assert "-X main.version=10.0.0" in server
    assert packages.endswith("yarn-3.4.1.cjs install")
    assert pages.endswith("--config scripts/webpack/webpack.reduced.js")


def test_tools_use_the_settings_of_this_machine(tmp_path: Path) -> None:
    grafana_build.build(job(tmp_path), source_tree(tmp_path), {"GOFLAGS": "-mod=mod"}, "2")
    node = (tmp_path / "environment-of-node").read_text().splitlines()
    assert "YARN_NPM_REGISTRY_SERVER=https://npm.example" in node
    assert "LEFT_OUT=panel/news" in node
    assert f"YARN_GLOBAL_FOLDER={tmp_path}/scratch/yarn" in node
    assert not any(line.startswith("YARN_HTTPS") for line in node)
    go = (tmp_path / "environment-of-go").read_text().splitlines()
    assert {"GOFLAGS=-mod=mod", "CGO_ENABLED=1", f"CC={tmp_path}/tools/cc"} <= set(go)


def test_only_packages_required_for_the_pages_are_downloaded(tmp_path: Path) -> None:
    source = source_tree(tmp_path)
    grafana_build.build(job(tmp_path), source, {}, "2")
    manifest = json.loads((source / "package.json").read_text())
    assert manifest["dependencies"] == {"react": "18.2.0"}
    assert manifest["devDependencies"] == {"webpack": "5.76.0"}
    assert manifest["resolutions"] == MANIFEST["resolutions"]
    assert manifest["scripts"] == {}
    assert "packages/grafana-ui" in manifest["workspaces"]
    workspace = json.loads((source / "packages" / "grafana-ui" / "package.json").read_text())
    assert workspace["devDependencies"] == {}
    assert "kusto" not in (source / "scripts" / "webpack" / "webpack.common.js").read_text()
    assert {"webpack.reduced.js", "gauge.js"} <= {
        file.name for file in (source / "scripts/webpack").iterdir()
    }


def test_another_version_of_grafana_is_refused(tmp_path: Path) -> None:
    source = source_tree(tmp_path)
    (source / "scripts" / "webpack" / "webpack.common.js").write_text("patterns: []\n")
    with pytest.raises(Failed, match=re.escape("webpack.common.js")):
        grafana_build.build(job(tmp_path), source, {}, "2")


def test_a_missing_plugin_to_omit_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="panel/newz"):
        grafana_build.kept_plugins(source_tree(tmp_path), ["panel/newz"])


def test_yarn_gets_only_the_settings_of_npm() -> None:
    settings = 'registry = "https://npm.example/"\nhttps-proxy = null\ncafile = "/etc/ca.pem"\n'
    assert grafana_build.yarn_settings(settings) == {
        "YARN_NPM_REGISTRY_SERVER": "https://npm.example",
        "YARN_HTTPS_CA_FILE_PATH": "/etc/ca.pem",
    }


def test_panels_and_data_sources_of_dashboards_are_not_omitted() -> None:
    left_out = set(programs.program_sets()["grafana"].settings["plugins_left_out"])
    panels = (
        "timeseries",
        "stat",
        "gauge",
        "bargauge",
        "table",
        "heatmap",
        "state-timeline",
        "text",
        "alertlist",
    )
    assert not left_out & {f"panel/{name}" for name in panels}
    assert not left_out & {"datasource/prometheus", "datasource/alertmanager", "datasource/mixed"}
