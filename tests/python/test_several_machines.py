"""Jobs of several machines: what users and files say reaches the ranks as it stands, and no shell or ssh takes it for more.

Programs stand in for pdsh, ssh, mpirun and srun, all on this machine. They note their arguments, and do with them what the real ones
do: pdsh writes numbers of machines in place of %n and ends at an empty word, ssh joins words for a shell of the other machine.
tests/machines has real ones.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from deepspeed.launcher import runner

TAIL = """
def note(kind):
    with open(os.path.join(os.environ["NOTES"], f"{kind}.{os.getpid()}"), "w") as file:
        json.dump(sys.argv, file)
"""
STAND_INS = {
    "pdsh": """
import itertools, re, subprocess
note("pdsh")
words = sys.argv[1:]
hosts = words[words.index("-w") + 1].split(",")
words = list(itertools.takewhile(bool, words[words.index("-w") + 2 :]))
def expand(word, host, number):
    return re.sub("%[hnu%]", lambda found: {"h": host, "n": str(number), "u": "me", "%": "%"}[found[0][1]], word)
started = [subprocess.Popen(["ssh", host, *[expand(word, host, number) for word in words]]) for number, host in enumerate(hosts)]
sys.exit(max(process.wait() for process in started))
""",
    "ssh": """
note("ssh")
words = sys.argv[1:]
while words[0].startswith("-"):
    option = words.pop(0)
    if option == "--":
        break
    if option in ("-o", "-p"):
        words.pop(0)
os.execvp("sh", ["sh", "-c", " ".join(words[1:])])
""",
    "mpirun": """
import subprocess
note("mpirun")
words = sys.argv[sys.argv.index("--rank") - 1 :]
def place(rank):
    kinds = ("RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    return dict(os.environ, **dict.fromkeys(kinds, str(rank)))
started = [subprocess.Popen(words[: words.index("--rank") + 2], env=place(rank)) for rank in range(2)]
sys.exit(max(process.wait() for process in started))
""",
}
STAND_INS["srun"] = STAND_INS["mpirun"].replace('note("mpirun")', 'note("srun")')
STAND_INS.update(ompi_info="", mpiname="")

SCRIPT = """
import json, os, sys
names = ("PLAIN", "QUOTED", "RUN", "PERCENT", "SPACES")
found = dict(words=sys.argv[1:], values={name: os.environ.get(name) for name in names}, cwd=os.getcwd(), pid=os.getpid())
with open(os.path.join(os.environ["NOTES"], "found." + os.environ["RANK"] + ".new"), "w") as file:
    json.dump(found, file)
os.rename(file.name, file.name[: -len(".new")])
if sys.argv[-1] == "wait":
    import time
    time.sleep(600)
"""

WORDS = ["plain", "", "a  b", "it's", 'say "x"', "$(touch $MARK)", "`touch $MARK`", "$HOME", "a\\b\\\\", "two\nlines", "%h %n %% 5%"]
WORDS += ["*", "~", "-w", "; touch $MARK", "&& touch $MARK", "\u00e9", "!x", "\ttab ", "--local_rank", "last"]
VALUES = {
    "PLAIN": "hush-1",
    "QUOTED": "hush '2' \"2\" \\",
    "RUN": "hush $(touch $MARK) `touch $MARK`",
    "PERCENT": "hush %h%n",
    "SPACES": "hush   a,b;c=d",
}


@pytest.fixture
def place(tmp_path):
    """Is a folder with programs that stand in for the launchers, a home and a folder to work in with an odd name."""
    for name in ("bin", "notes", "home", "tmp", "work $(touch $MARK) 'x'"):
        (tmp_path / name).mkdir()
    for name, text in STAND_INS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!{sys.executable}\nimport json, os, sys\n{TAIL}{text}")
        program.chmod(0o755)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "home" / ".deepspeed_env").write_text("".join(f"{name}={value}\n" for name, value in VALUES.items()))
    return tmp_path


def start(place, launcher, hosts, *words):
    (place / "hosts").write_text(hosts)
    folder = place / "work $(touch $MARK) 'x'"
    environment = dict(
        os.environ,
        PATH=f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        NOTES=str(place / "notes"),
        MARK=str(place / "mark"),
        HOME=str(place / "home"),
        TMPDIR=str(place / "tmp"),
    )
    flags = ["-H", str(place / "hosts"), "--force_multi", "--launcher", launcher, "--no_local_rank"]
    command = [sys.executable, "-m", "deepspeed.launcher.runner", *flags, *words]
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def launch(place, launcher, hosts, *words):
    process = start(place, launcher, hosts, *words)
    output, _ = process.communicate(timeout=180)
    return process.returncode, output


def refusal(place, hosts, *words):
    """Returns what the launcher says before it has started anything."""
    code, output = launch(place, "pdsh", hosts, *words)
    assert code != 0 and not notes(place, "*"), f"something was started\n{output}"
    return output


def notes(place, kind):
    return [json.loads(path.read_text()) for path in sorted((place / "notes").glob(f"{kind}.*"))]


@pytest.mark.parametrize("launcher", ["ssh", "pdsh", "openmpi", "mpich", "impi", "mvapich", "slurm"])
def test_passes_arguments_and_variables_unchanged(place, launcher):
    hosts = "one slots=1\ntwo slots=1\n" if launcher in ("ssh", "pdsh") else "one slots=2\n"
    code, output = launch(place, launcher, hosts, "--master_addr", "127.0.0.1", "--no_ssh_check", str(place / "script.py"), *WORDS)
    assert code == 0, output
    found = notes(place, "found")
    assert len(found) == 2
    for rank in found:
        assert rank["words"] == WORDS and rank["values"] == VALUES
        assert rank["cwd"] == str(place / "work $(touch $MARK) 'x'")
    assert not (place / "mark").exists()
    started = json.dumps([notes(place, kind) for kind in ("pdsh", "ssh", "mpirun", "srun")])
    assert "hush" not in output and "hush" not in started and '"last"' not in started
    assert not list((place / "tmp").iterdir())


def test_ends_the_options_of_ssh(place):
    code, output = launch(place, "ssh", "one slots=1\ntwo slots=1\n", "--master_addr", "127.0.0.1", str(place / "script.py"))
    assert code == 0, output
    asked = notes(place, "ssh")
    assert len(asked) == 2 and all(words[words.index("exec") - 2] == "--" for words in asked)


@pytest.mark.parametrize("host", ["-oProxyCommand=touch${IFS}$MARK", "$(touch${IFS}$MARK)", "one;two", "^hosts", "n[1-2]", "%h", "one,two"])
def test_refuses_names_that_no_machine_has(place, host):
    said = refusal(place, f"# machines\n{host} slots=1\none slots=1\n", str(place / "script.py"))
    assert f"{place / 'hosts'} line 2: host '{host}': expected a name or an address" in said


@pytest.mark.parametrize("host", ["worker-1", "10.0.0.1", "me@one.example.org", "fe80::1", "a_b"])
def test_accepts_names_of_machines(host):
    assert runner._parse_hostfile([f"{host} slots=2"]) == {host: 2}


@pytest.mark.parametrize("line", ["A;touch $MARK;B=1", "1A=2", "A B=2", "$(touch $MARK)=1", "NO_VALUE", "=1"])
def test_refuses_names_that_no_variable_has_with_file_and_line(place, line):
    path = place / "home" / ".deepspeed_env"
    path.write_text(f"# mine\n\nGOOD=1\n{line}\n")
    said = refusal(place, "localhost slots=1\n", "--master_addr", "127.0.0.1", str(place / "script.py"))
    assert f"{path} line 4: " in said and "expected" in said


def test_removes_each_mvapich_jobs_file_of_hosts_with_it(place):
    before = set(pathlib.Path("/tmp").glob("deepspeed_hosts_*"))
    code, output = launch(place, "mvapich", "one slots=2\n", "--master_addr", "127.0.0.1", "--no_ssh_check", str(place / "script.py"))
    assert code == 0, output
    ((words,),) = [notes(place, "mpirun")]
    path = pathlib.Path(words[words.index("--hostfile") + 1])
    assert path.parent == pathlib.Path("/tmp") and not path.exists() and path not in before


def pids(folder):
    return [json.loads(path.read_text())["pid"] for path in folder.glob("found.?")]


def wait_until(holds, seconds=120):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def lives(pid):
    try:
        return (
            "(python" in pathlib.Path(f"/proc/{pid}/stat").read_text() and b"script.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except FileNotFoundError:
        return False


def test_leaves_other_jobs_of_the_same_script_running(place):
    words = ("--master_addr", "127.0.0.1", str(place / "script.py"), "wait")
    jobs = []
    try:
        for name in ("first", "second"):
            jobs.append(start(place, "pdsh", "one slots=1\ntwo slots=1\n", *words))
            wait_until(lambda: len(list((place / "notes").glob("found.?"))) == 2 or jobs[-1].poll() is not None)
            (place / name).mkdir()
            for path in (place / "notes").glob("found.?"):
                path.rename(place / name / path.name)
        first, second = pids(place / "first"), pids(place / "second")
        assert len(first) == len(second) == 2 and all(map(lives, first + second))
        jobs[0].send_signal(signal.SIGTERM)
        assert jobs[0].wait(timeout=120) != 0
        wait_until(lambda: not any(map(lives, first)))
        assert all(map(lives, second)) and jobs[1].poll() is None
    finally:
        for job in jobs:
            job.send_signal(signal.SIGTERM)
            job.wait(timeout=120)
        wait_until(lambda: not any(map(lives, pids(place / "first") + pids(place / "second"))))


@pytest.mark.parametrize("name", ["train.cpp", "train.cu", "train.cc"])
def test_refuses_a_source_file_as_a_program(place, name):
    source = place / name
    source.write_text("int main() {}\n")
    code, output = launch(place, "ssh", "one slots=1\ntwo slots=1\n", "--master_addr", "127.0.0.1", str(source))
    assert code == 126 and f"{source} is a source file, no program: compile it" in output and not notes(place, "found")
