"""What a release's wheel is linked against, and what is refused in it (scripts/wheel)."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts/wheel"))
import audit
import older_system

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed")


def run(*words, folder=None):
    return subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def compile_library(folder, text, *options):
    (folder / "a.cpp").write_text(text)
    run("g++", "-shared", "-fPIC", "-O1", "-o", "liba.so", "a.cpp", *options, folder=folder)
    return folder / "liba.so"


LIBRARY = """
extern "C" int fresh() { return 3; }
extern "C" int kept() { return 1; }
extern "C" int older() { return 1; }
extern "C" int newer() { return 2; }
__asm__(".symver older,changed@GLIBC_2.17\\n.symver newer,changed@@GLIBC_2.34");
"""


def test_what_is_newer_is_hidden_from_the_linker_and_the_older_version_takes_its_place(tmp_path):
    (tmp_path / "versions").write_text("GLIBC_2.17 { global: kept; };\nGLIBC_2.34 { global: fresh; } GLIBC_2.17;\n")
    path = compile_library(tmp_path, LIBRARY, "-Wl,--version-script=versions", "-Wl,-soname,liba.so")
    data, offered = older_system.without_newer(path.read_bytes())
    assert offered & {"kept", "changed", "fresh"} == {"kept", "changed"}
    path.write_bytes(data)

    def link(call):
        (tmp_path / "main.cpp").write_text(f'extern "C" int {call}(); int main() {{ return {call}(); }}')
        return subprocess.run(["g++", "-o", "main", "main.cpp", "liba.so"], cwd=tmp_path, capture_output=True, text=True)

    assert link("changed").returncode == 0
    assert re.search(r"\(?GLIBC_2\.17\)?\s+changed", run("objdump", "-T", tmp_path / "main"))
    assert "undefined reference to `fresh'" in link("fresh").stderr


def test_the_archive_defines_what_the_older_library_lacks_and_refers_to_it_for_the_rest(tmp_path):
    (tmp_path / "a.cpp").write_text('extern "C" int old() { return 1; }\nextern "C" int fresh() { return old() + 1; }\n')
    run("g++", "-c", "-O1", "-fPIC", "-fno-inline", "a.cpp", folder=tmp_path)
    data = (tmp_path / "a.o").read_bytes()
    (tmp_path / "b.o").write_bytes(older_system.beyond(data, {"old"}))
    symbols = run("readelf", "--symbols", "--wide", "b.o", folder=tmp_path)
    assert re.search(r"GLOBAL +HIDDEN +\d+ fresh", symbols) and re.search(r"GLOBAL +DEFAULT +UND old", symbols)
    assert older_system.beyond(data, {"old", "fresh"}) is None


@pytest.mark.parametrize("text, state", [("int f() { return 1; }", False), ("int f() { static int calls; return ++calls; }", True)])
def test_variables_of_its_own_keep_a_member_out(tmp_path, text, state):
    (tmp_path / "a.cpp").write_text(text)
    run("g++", "-c", "-O1", "-fPIC", "a.cpp", folder=tmp_path)
    assert older_system.has_state(older_system.Elf((tmp_path / "a.o").read_bytes())) == state


def test_versions_are_compared_as_numbers():
    assert [older_system.is_newer(v) for v in ("GLIBC_2.28", "GLIBC_2.3.4", "GLIBC_2.29", "GLIBCXX_3.4.24", "GLIBCXX_3.4.30")] == [
        *(False, False, True, False, True)
    ]


@pytest.mark.parametrize(
    "options, said",
    [
        (["-Wl,-rpath,/root/torch/lib"], "looks for libraries in /root/torch/lib"),
        (["-Wl,-rpath,$ORIGIN:"], "looks for libraries in $ORIGIN:"),
        (["-nostdlib"], "needs memfd_create of the system without a version"),
        ([], "of GLIBC_2.34"),
    ],
)
def test_a_file_that_needs_more_than_the_tag_says_is_found(tmp_path, options, said):
    text = 'extern "C" int memfd_create(const char*, unsigned); extern "C" void* dlopen(const char*, int);'
    path = compile_library(tmp_path, text + "int f() { return dlopen(nullptr, memfd_create(nullptr, 0)) != nullptr; }", *options)
    found = "\n".join(audit._file_problems(path, "liba.so", audit._system_symbols()))
    if said == "of GLIBC_2.34" and said not in found:
        pytest.skip("this system's glibc is older than 2.34")
    assert said in found


def test_a_wheel_with_problems_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "problems", lambda wheel, site: ["libfoo.so is missing"])
    with pytest.raises(SystemExit, match=r"is not written:\n  - libfoo\.so is missing"):
        audit.main(tmp_path / "deepspeed-1-cp311-cp311-linux_x86_64.whl", tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def test_libraries_are_the_wheels_torchs_or_nvidias(tmp_path):
    for name in ("torch/lib/libc10.so", "nvidia/cu13/lib/libcudart.so.13"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    found = list(audit._library_problems({"external_libs": ["libc10.so", "libcudart.so.13", "libfmt.so.9"]}, tmp_path))
    assert found == [f"it needs libfmt.so.9, which is neither in the wheel nor in {tmp_path}"]
