"""What is installed: every module, in every way of installing, and an import that costs next to nothing."""

from __future__ import annotations

import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
# Folder in the repository -> folder once installed.
FOLDERS = {
    "gputrace": "gputrace",
    "exporters": "gputrace/exporters",
    "grafana": "gputrace/grafana",
    "integrations": "gputrace/integrations",
}
# What the installed code writes, and what serves the repository alone.
NOT_INSTALLED = ("grafana/dashboards/", "grafana/prometheus/rules/", "grafana/stack.sh")
METADATA = ("pyproject.toml", "README.md", "LICENSE")
# A module may need these when it is imported, not only when it is used; nothing else may be missing.
OPTIONAL = {"duckdb", "fastapi", "httpx", "ray", "rich", "sklearn", "starlette", "torch", "uvicorn"}
HEAVY = (
    "asyncio",
    "duckdb",
    "fastapi",
    "numpy",
    "opentelemetry.sdk",
    "pynvml",
    "ray",
    "requests",
    "rich",
    "torch",
)

IMPORT_ALL = """
import importlib, sys
import gputrace

optional, names = set(sys.argv[1].split()), sys.argv[2].split()
public = {name: getattr(gputrace, name) for name in gputrace.__all__}
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in optional:
            raise
assert {name: getattr(gputrace, name) for name in gputrace.__all__} == public
submodules = {name.split(".")[1] for name in names if "." in name}
assert not submodules & set(public), submodules & set(public)
print(gputrace.__file__)
"""


def installed_files(root: Path) -> list[str]:
    """Every file of the package, by its path once installed."""
    return sorted(
        f"{target}/{path.relative_to(root / folder).as_posix()}"
        for folder, target in FOLDERS.items()
        for path in (root / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
        if not path.relative_to(root).as_posix().startswith(NOT_INSTALLED)
    )


def module_names(root: Path) -> list[str]:
    names = [name.removesuffix(".py") for name in installed_files(root) if name.endswith(".py")]
    dotted = [name.removesuffix("/__init__").replace("/", ".") for name in names]
    return [name for name in dotted if not name.endswith("__main__")]


def project_file() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_every_package_is_listed() -> None:
    listed = project_file()["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(
        {name.rpartition("/")[0].replace("/", ".") for name in installed_files(ROOT) if name.endswith(".py")}
    )


def test_importing_every_module_leaves_the_public_names_alone(tmp_path: Path) -> None:
    run(sys.executable, "-c", IMPORT_ALL, " ".join(OPTIONAL), " ".join(module_names(ROOT)), cwd=tmp_path)


def test_import_is_light(tmp_path: Path) -> None:
    lines = run(sys.executable, "-X", "importtime", "-c", "import gputrace", cwd=tmp_path).stderr.splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert "gputrace" in loaded
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{heavy}." for heavy in HEAVY))] == []


def test_import_starts_no_thread(tmp_path: Path) -> None:
    count = "import gputrace, os; print(len(os.listdir('/proc/self/task')))"
    assert run(sys.executable, "-c", count, cwd=tmp_path).stdout.strip() == "1"


def test_lower_bounds_are_those_that_are_tested() -> None:
    project = project_file()["project"]
    extras = project["optional-dependencies"]
    bounds = [*project["dependencies"], *extras["report"], *extras["fastapi"]]
    pins = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    # Bound and pin may differ in trailing zeros: 1.17 and 1.17.0.
    pinned = {re.sub(r"(\.0)+$", "", pin.replace("==", ">=")) for pin in pins}
    untested = [bound for bound in bounds if re.sub(r"(\.0)+$", "", bound) not in pinned]
    assert untested == [], "run `make constraints`"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    source = copy_sources(folder / "source")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, cwd=folder)
    return folder


def copy_sources(target: Path) -> Path:
    """What a build reads, elsewhere: it leaves files behind, and stale ones would get into the next wheel."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in METADATA:
        shutil.copy(ROOT / name, target / name)
    return target


def fresh_environment(folder: Path) -> Path:
    """The bin folder of a new environment that sees the dependencies of this one, and not its gputrace."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    # Folders named in a .pth file are not searched for further ones, so the editable install here stays out.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin"


@pytest.mark.wheel
def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = [name for name in names if ".dist-info/" in name]
    assert sorted(set(names) - set(metadata)) == installed_files(built / "source")
    assert [name for name in metadata if name.endswith("/licenses/LICENSE")]


@pytest.mark.wheel
@pytest.mark.parametrize("how", ["wheel", "sdist", "plain", "editable"])
def test_every_module_imports_once_installed(how: str, built: Path, tmp_path: Path) -> None:
    programs = fresh_environment(tmp_path / "environment")
    what: dict[str, list[str | Path]] = {
        "wheel": [*built.glob("*.whl")],
        "sdist": [*built.glob("*.tar.gz")],
        "plain": [tmp_path / "source"],
        "editable": ["--editable", tmp_path / "source"],
    }
    copy_sources(tmp_path / "source")
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet")
    run(*pip, "--no-index", "--no-deps", "--no-build-isolation", *what[how], cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = " ".join(module_names(tmp_path / "source"))
    where = run(programs / "python", "-I", "-c", IMPORT_ALL, " ".join(OPTIONAL), names, cwd=elsewhere).stdout
    assert where.startswith(str(tmp_path / ("source" if how == "editable" else "environment")))
    run(programs / "gputrace", "--help", cwd=elsewhere)
