"""What the package says where it does not fit, and what it tells CMake."""

import subprocess
import sys

import pytest

import deepspeed
import deepspeed.cmake
from deepspeed import _build, _version


def test_another_minor_version_of_torch_is_refused_with_the_one_that_fits():
    _version.check_torch(f"{_build.TORCH}.7+cu130")
    with pytest.raises(ImportError) as error:
        _version.check_torch("2.10.0")
    text = str(error.value)
    assert f"was built for torch {_build.TORCH}, and this is torch 2.10.0: install torch=={_build.TORCH}.*" in text
    assert "pip install ." in text and "\n" not in text


def test_another_python_is_refused(monkeypatch):
    _version.check_python()
    monkeypatch.setattr(_version, "PYTHON", "cpython-39-x86_64-linux-gnu")
    with pytest.raises(ImportError, match="was built for cpython-39-x86_64-linux-gnu, and this Python is cpython-3"):
        _version.check_python()


def test_a_python_without_torch_is_told_which_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(_version.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"no torch is installed: pip install 'torch==2\.\d+\.\*'"):
        _version.check_python()


@pytest.mark.parametrize(
    "loader, said",
    [
        (
            "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /a/deepspeed/_core.so)",
            r"needs GLIBCXX_3\.4\.30, which /lib/x86_64-linux-gnu/libstdc\+\+\.so\.6 lacks \(conda install -c conda-forge libstdcxx-ng",
        ),
        (
            "/lib64/libc.so.6: version `GLIBC_2.34' not found (required by /a/_core.so)",
            r"needs GLIBC_2\.34, which /lib64/libc\.so\.6 lacks\. ",
        ),
        ("/a/_core.so: undefined symbol: _ZN5torch3jit4loadEv", "this torch is another build, without _ZN5torch3jit4loadEv"),
    ],
)
def test_what_the_loader_says_becomes_one_line_with_a_way_out(loader, said):
    with pytest.raises(ImportError, match=said) as error, _version.explained():
        raise ImportError(loader)
    assert "pip install ." in str(error.value) and "\n" not in str(error.value)


def test_other_errors_of_the_import_stay_as_they_are():
    with pytest.raises(ImportError, match="^something else$"), _version.explained():
        raise ImportError("something else")


def test_cmake_is_told_the_folder_of_the_package(tmp_path, monkeypatch, capsys):
    (tmp_path / "deepspeed/lib/cmake/deepspeed").mkdir(parents=True)
    (tmp_path / "deepspeed/lib/cmake/deepspeed/deepspeedConfig.cmake").touch()
    monkeypatch.setattr(deepspeed, "__path__", [str(tmp_path / "deepspeed")])
    deepspeed.cmake.main()
    said = capsys.readouterr()
    assert said.out == f"{tmp_path}/deepspeed\n"
    assert "pass -DDEEPSPEED_TORCH_DIR=" in said.err


def test_a_build_folder_has_no_files_for_cmake():
    run = subprocess.run([sys.executable, "-m", "deepspeed.cmake"], capture_output=True, text=True)
    assert run.returncode == 1 and run.stdout == ""
    assert "[deepspeed.cmake]" in run.stderr and "holds no files for CMake" in run.stderr and "Traceback" not in run.stderr
