"""The wheel is built for the torch that is installed where pip runs, and needs its minor version."""

import pathlib
import sys

import pytest
import torch

import deepspeed

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "python"))  # behind the package under test
import wheel_backend  # noqa: E402


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    """Where pip calls the hooks."""
    monkeypatch.chdir(ROOT)


def place(folder, version):
    """Lays out what pip leaves of an installed torch."""
    info = folder / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    return folder / "torch"


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.delenv("DEEPSPEED_TORCH_DIR", raising=False)
    monkeypatch.setattr(wheel_backend, "_site_packages", lambda: [str(tmp_path)])
    return tmp_path


def needs(requirements):
    return [line for line in requirements if line.startswith("torch")]


def test_the_torch_that_is_installed_is_taken():
    assert wheel_backend._chosen() == (pathlib.Path(torch.__file__).parent, ".".join(torch.__version__.split(".")[:2]))
    assert needs(wheel_backend.get_requires_for_build_wheel()) == []


def test_its_version_is_that_of_the_build():
    assert wheel_backend.dynamic_metadata("version") == deepspeed.__version__


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.15.0"])
def test_its_minor_version_becomes_what_the_wheel_needs(site, version):
    torch_folder = place(site, version)
    minor = ".".join(version.split(".")[:2])
    assert wheel_backend._chosen() == (torch_folder, minor)
    assert needs(wheel_backend.get_requires_for_build_wheel()) == []
    assert wheel_backend.dynamic_metadata("dependencies") == [f"torch=={minor}.*", "packaging"]


def test_without_a_torch_pip_fetches_one(site):
    assert needs(wheel_backend.get_requires_for_build_wheel()) == ["torch==2.11.*"]
    assert wheel_backend.dynamic_metadata("dependencies") == ["torch==2.11.*", "packaging"]


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0"])
def test_another_torch_is_refused_by_its_folder(site, version):
    folder = place(site, version)
    with pytest.raises(SystemExit, match=f"torch {version} is installed in {folder}"):
        wheel_backend.get_requires_for_build_wheel()


def test_a_named_folder_comes_first(site, tmp_path_factory, monkeypatch):
    place(site, "2.11.0")
    other = place(tmp_path_factory.mktemp("other"), "2.15.0")
    monkeypatch.setenv("DEEPSPEED_TORCH_DIR", str(other))
    assert wheel_backend._chosen() == (other, "2.15")


def test_what_the_machine_lacks_is_said_before_pip_fetches_torch(site, tmp_path, monkeypatch):
    old = tmp_path / "c++"
    old.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=10 "$@"\n')
    old.chmod(0o755)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3.10 /no/include\n")
    python.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    monkeypatch.setattr(wheel_backend.sys, "executable", str(python))
    with pytest.raises(SystemExit) as raised:
        wheel_backend.get_requires_for_build_wheel()
    _, compiler, headers = str(raised.value).split("\n")
    assert f"the compiler '{old}' is " in compiler and "(GNU 10), and g++ 11 or clang 16 or later is needed" in compiler
    assert "Python's headers are missing (no /no/include/Python.h): apt: python3-dev" in headers
