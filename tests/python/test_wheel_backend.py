"""The wheel is built for the torch that is installed where pip runs, and needs its minor version.

Where a release's wheel or archive of the very sources lies in the cache folder, it is taken and nothing is compiled.
"""

import io
import pathlib
import sys
import tarfile
import zipfile

import pytest
import torch

import deepspeed

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "python"))  # behind the package under test
import release_cache  # noqa: E402
import wheel_backend  # noqa: E402


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    """Where pip calls the hooks, with an empty cache folder."""
    monkeypatch.chdir(ROOT)
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DEEPSPEED_CPP_CACHE", str(folder))
    for name in (*release_cache._OPTIONS, "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(release_cache.shutil, "which", lambda name: None)
    return folder


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


TAG = f"cp3{sys.version_info[1]}"
MINOR = ".".join(torch.__version__.split(".")[:2])


def put_wheel(folder, tag=TAG, text=None):
    """Lays a release's wheel into the cache folder."""
    path = folder / f"deepspeed-1.0-{tag}-{tag}-manylinux_2_17_{release_cache.platform.machine()}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "deepspeed/libexec/deepspeed/release.txt", text or f"sources {release_cache.sources()}\ntorch {MINOR}.0\ncuda 90\n"
        )
    return path


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(wheel_backend._build, "build_wheel", lambda *arguments: "compiled.whl")
    return "compiled.whl"


def test_a_wheel_of_these_sources_is_taken_from_the_cache(cache, compiled, tmp_path, capsys):
    path = put_wheel(cache)
    assert wheel_backend.get_requires_for_build_wheel() == []
    assert wheel_backend.build_wheel(tmp_path) == path.name
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    assert f"{path} is used" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, why",
    [
        (f"sources 0123\ntorch {MINOR}.0\ncuda 90\n", "it was made of other sources than this checkout's"),
        ("{sources}\ntorch 2.9.1\ncuda 90\n", f"it was made for torch 2.9.1, and {MINOR} is wanted"),
        ("torch 2.11.0\n", "it does not say which sources it was made of"),
    ],
)
def test_another_wheel_is_passed_over_and_said_so(cache, compiled, tmp_path, capsys, text, why):
    path = put_wheel(cache, text=text.replace("{sources}", f"sources {release_cache.sources()}"))
    assert wheel_backend.build_wheel(tmp_path) == compiled
    assert f"{path} is not used: {why}" in capsys.readouterr().err


def test_a_wheel_without_cuda_is_passed_over_where_nvcc_is(cache, compiled, tmp_path, monkeypatch, capsys):
    put_wheel(cache, text=f"sources {release_cache.sources()}\ntorch {MINOR}.0\ncuda \n")
    assert wheel_backend.build_wheel(tmp_path) != compiled
    monkeypatch.setattr(release_cache.shutil, "which", lambda name: f"/usr/local/cuda/bin/{name}")
    assert wheel_backend.build_wheel(tmp_path) == compiled
    assert "it has no CUDA, and nvcc is here" in capsys.readouterr().err


def test_a_wheel_of_another_python_and_a_broken_one_are_passed_over(cache, compiled, tmp_path, capsys):
    put_wheel(cache, tag="cp39")
    (cache / f"deepspeed-2.0-{TAG}-{TAG}-linux_x86_64.whl").write_bytes(b"PK cut off")
    assert wheel_backend.build_wheel(tmp_path) == compiled
    assert "it cannot be read" in capsys.readouterr().err


def test_a_build_with_options_of_its_own_is_compiled(cache, compiled, tmp_path, monkeypatch, capsys):
    put_wheel(cache)
    assert wheel_backend.build_wheel(tmp_path, {"cmake.define.DEEPSPEED_CUDA": "OFF"}) == compiled
    monkeypatch.setenv("CUDAARCHS", "90-real")
    assert wheel_backend.build_wheel(tmp_path) == compiled
    assert "CUDAARCHS is set: nothing is taken" in capsys.readouterr().err


def test_the_hash_of_the_sources_is_that_of_names_and_contents(tmp_path):
    (tmp_path / "deepspeed").mkdir()
    for name in ("CMakeLists.txt", "deepspeed/a.cpp"):
        (tmp_path / name).write_text("a")
    first = release_cache.sources(tmp_path)
    (tmp_path / "README.md").write_text("no build reads it")
    assert release_cache.sources(tmp_path) == first
    (tmp_path / "deepspeed/a.cpp").write_text("b")
    assert release_cache.sources(tmp_path) != first
    (tmp_path / "deepspeed/a.cpp").write_text("a")
    (tmp_path / "deepspeed/a.cpp").rename(tmp_path / "deepspeed/b.cpp")
    assert release_cache.sources(tmp_path) != first


@pytest.mark.parametrize("program, fits", [("#!/bin/sh\nexit 0\n", True), ("#!/bin/sh\necho no such symbol >&2; exit 127\n", False)])
def test_an_archive_is_unpacked_and_its_programs_have_to_start(cache, capsys, program, fits):
    path = cache / f"deepspeed-cpp-1.0-torch-{MINOR}.0-Linux-{release_cache.platform.machine()}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (("release.txt", f"sources {release_cache.sources()}\ntorch {MINOR}.0\ncuda \n"), ("gpt2", program)):
            member = tarfile.TarInfo(f"deepspeed-cpp-1.0/libexec/deepspeed/{name}")
            member.size, member.mode = len(text), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    found = release_cache.prefix(pathlib.Path(torch.__file__).parent)
    said = capsys.readouterr().err
    if fits:
        assert (found / "libexec/deepspeed/gpt2").exists() and f"{path} is used" in said
        assert release_cache.prefix(pathlib.Path(torch.__file__).parent) == found
    else:
        assert found is None and f"{path} is not used: its programs do not start here (no such symbol)" in said
