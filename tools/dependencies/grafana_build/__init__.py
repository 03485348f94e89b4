"""Builds Grafana's server and pages from its source: the longest recipe of recipes.py.

The source is Grafana's Go module, which has the whole repository except directories named `vendor`. The
server is built with the versions and checksums of its go.sum, the pages with those of its yarn.lock.
"""

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import Failed

if TYPE_CHECKING:
    from tools.dependencies.recipes import BuildJob

HERE = Path(__file__).parent
WORKSPACES = ("data", "e2e-selectors", "runtime", "schema", "ui")
# The tools that webpack.prod.js uses. The others are for tests, linters and Storybook.
BUILD_TOOLS = {
    "autoprefixer",
    "browserslist",
    "copy-webpack-plugin",
    "css-loader",
    "css-minimizer-webpack-plugin",
    "esbuild",
    "esbuild-loader",
    "esbuild-plugin-browserslist",
    "expose-loader",
    "html-loader",
    "html-webpack-plugin",
    "mini-css-extract-plugin",
    "ngtemplate-loader",
    "postcss",
    "postcss-loader",
    "postcss-reporter",
    "sass",
    "sass-loader",
    "style-loader",
    "webpack",
    "webpack-cli",
    "webpack-manifest-plugin",
    "webpack-merge",
}
# Editors, spreadsheets and a graph of variables that webpack.reduced.js leaves out; xlsx is in no registry.
NOT_NEEDED = {"@kusto/monaco-kusto", "visjs-network", "xlsx"}
KUSTO_FILES = """\
        {
          context: path.join(require.resolve('@kusto/monaco-kusto'), '../'),
          from: '**/*',
          to: '../lib/monaco/min/vs/language/kusto/',
        },
"""
NPM_SETTINGS_FOR_YARN = {
    "registry": "YARN_NPM_REGISTRY_SERVER",
    "https-proxy": "YARN_HTTPS_PROXY",
    "cafile": "YARN_HTTPS_CA_FILE_PATH",
}
SERVED = ("build", "dashboards", "emails", "fonts", "img", "lib", "views")
PLUGINS = Path("public", "app", "plugins")


def build(job: "BuildJob", source: Path, go_environment: Mapping[str, str], go_jobs: str) -> None:
    """Builds `home`, the directory that Grafana calls its home path."""
    home = job.into / "home"
    _build_server(job, source, go_environment, go_jobs, home / "bin" / "grafana")
    _build_pages(job, source)
    shutil.copytree(source / "conf", home / "conf")
    for name in SERVED:
        shutil.copytree(source / "public" / name, home / "public" / name)
    for plugin in kept_plugins(source, job.settings["plugins_left_out"]):
        _copy_plugin(plugin, home / plugin.relative_to(source))


def pruned(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The package.json of the repository with the dependencies of the pages only."""
    return {
        **manifest,
        "scripts": {},
        "workspaces": [f"packages/grafana-{name}" for name in WORKSPACES],
        "dependencies": _only(manifest["dependencies"], manifest["dependencies"].keys() - NOT_NEEDED),
        "devDependencies": _only(manifest["devDependencies"], BUILD_TOOLS),
    }


def kept_plugins(source: Path, left_out: Collection[str]) -> list[Path]:
    """The directories of the plugins that Grafana includes, except those left out (`panel/news`)."""
    plugins = source / PLUGINS
    directories = {file.parent for file in plugins.glob("*/*/plugin.json")}
    if missing := set(left_out) - {str(directory.relative_to(plugins)) for directory in directories}:
        raise Failed(
            f"plugins_left_out in programs.toml has plugins that this Grafana lacks: {sorted(missing)}"
        )
    return sorted(directories - {plugins / name for name in left_out})


def yarn_settings(npm_settings: str) -> dict[str, str]:
    """npm's settings (lines of `name = value`) as variables for yarn, which does not read them itself."""
    lines = (line.partition("=") for line in npm_settings.splitlines())
    found = {name.strip(): value.strip().strip('"') for name, _, value in lines}
    return {
        variable: found[name].rstrip("/")
        for name, variable in NPM_SETTINGS_FOR_YARN.items()
        if found.get(name, "null") != "null"
    }


def _build_server(
    job: "BuildJob", source: Path, environment: Mapping[str, str], go_jobs: str, program: Path
) -> None:
    # SQLite is written in C; its speed does not matter here.
    with_c = {"CGO_ENABLED": "1", "CC": str(job.find("cc")), "CGO_CFLAGS": "-O1 -fno-sanitize=undefined"}
    go = job.find("go")
    wire = f"github.com/google/wire/cmd/wire@{job.settings['wire']}"
    # wire runs `go` from PATH.
    path = f"{go.parent}{os.pathsep}{os.environ['PATH']}"
    steps = {
        "generating the server's wiring": ["run", wire, "gen", "-tags", "oss", "./pkg/server"],
        "building the server (many minutes)": [
            *("build", "-p", go_jobs, "-trimpath", "-tags", "oss"),
            # Without inlining and debug information the compiler has a third less work.
            *("-gcflags", "all=-l -dwarf=false", "-ldflags", f"-s -w -X main.version={job.version}"),
            *("-o", str(program), "./pkg/cmd/grafana"),
        ],
    }
    for step, arguments in steps.items():
        job.work.run(
            step, [go, *arguments], directory=source, environment={**environment, **with_c, "PATH": path}
        )


def _build_pages(job: "BuildJob", source: Path) -> None:
    _prune(source)
    node, npm = job.find("node"), job.find("npm")
    environment = {
        "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}",
        "NODE_ENV": "production",
        "NODE_OPTIONS": "--max-old-space-size=4096",
        "LEFT_OUT": " ".join(job.settings["plugins_left_out"]),
        "YARN_ENABLE_IMMUTABLE_INSTALLS": "0",
        "YARN_ENABLE_PROGRESS_BARS": "0",
        "YARN_ENABLE_SCRIPTS": "0",
        "YARN_GLOBAL_FOLDER": str(job.scratch / "yarn"),
        # The default linker, without node_modules, needs an old version of Node.
        "YARN_NODE_LINKER": "node-modules",
    }
    environment |= yarn_settings(
        job.work.run("reading npm's settings", [npm, "config", "get", *NPM_SETTINGS_FOR_YARN])
    )
    (yarn,) = source.glob(".yarn/releases/yarn-*.cjs")
    webpack = source / "node_modules" / "webpack-cli" / "bin" / "cli.js"
    steps: dict[str, list[str | Path]] = {
        "downloading packages (minutes)": [yarn, "install"],
        "building the pages (minutes)": [webpack, "--config", "scripts/webpack/webpack.reduced.js"],
    }
    for step, arguments in steps.items():
        job.work.run(step, [node, *arguments], directory=source, environment=environment)


def _prune(source: Path) -> None:
    manifest = source / "package.json"
    manifest.write_text(json.dumps(pruned(json.loads(manifest.read_text()))))
    for name in WORKSPACES:
        workspace = source / "packages" / f"grafana-{name}" / "package.json"
        workspace.write_text(json.dumps({**json.loads(workspace.read_text()), "devDependencies": {}}))
    settings = source / "scripts" / "webpack"
    common = settings / "webpack.common.js"
    text = common.read_text()
    if KUSTO_FILES not in text:
        raise Failed(
            f"{common.name} of this Grafana differs; change KUSTO_FILES in tools/dependencies/grafana_build"
        )
    common.write_text(text.replace(KUSTO_FILES, ""))
    for name in ("webpack.reduced.js", "gauge.js"):
        shutil.copy(HERE / name, settings)


def _copy_plugin(plugin: Path, target: Path) -> None:
    """Copies the files of a plugin that the server reads or serves; its code is in the pages."""
    target.mkdir(parents=True)
    shutil.copy(plugin / "plugin.json", target)
    if (plugin / "img").exists():
        shutil.copytree(plugin / "img", target / "img")


def _only(dependencies: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: version for name, version in dependencies.items() if name in names}
