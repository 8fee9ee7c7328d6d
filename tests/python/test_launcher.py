"""The launcher's functions in Python: which slots, which command, and the launch of one machine's ranks."""

import json
import os
import subprocess
import sys

import pytest
import torch

from deepspeed.launcher import launch as launch_module, multinode_runner, programs, resources, runner, scripts

HOSTS = {"one": [0, 1], "two": [0, 1]}


@pytest.mark.parametrize(
    "include, exclude, expected",
    [
        ("", "", HOSTS),
        ("two:1", "", {"two": [1]}),
        ("two@one:0", "", {"one": [0], "two": [0, 1]}),
        ("", "one", {"two": [0, 1]}),
        ("", "one:0@two:0,1", {"one": [1]}),
    ],
)
def test_chooses_slots_by_filters(include, exclude, expected):
    assert runner.parse_resource_filter(HOSTS, include, exclude) == expected


@pytest.mark.parametrize("include, exclude", [("one", "two"), ("three", ""), ("", "one:2")])
def test_refuses_filters_of_what_does_not_exist(include, exclude):
    with pytest.raises(ValueError):
        runner.parse_resource_filter(HOSTS, include, exclude)


def test_allows_included_slots_beyond_the_hostfiles_number():
    assert runner.parse_inclusion_exclusion({"one": 2, "two": 2}, "one:3", "") == {"one": [3]}


def test_reads_one_line_for_each_host(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# comment\none slots=2\n\ntwo slots=4\n")
    assert runner.fetch_hostfile(str(path)) == {"one": 2, "two": 4}
    assert runner.fetch_hostfile(str(tmp_path / "missing")) is None
    path.write_text("one slots=2\none slots=4\n")
    with pytest.raises(ValueError, match="one"):
        runner.fetch_hostfile(str(path))


RUNNERS = [
    multinode_runner.OpenMPIRunner,
    multinode_runner.MPICHRunner,
    multinode_runner.IMPIRunner,
    multinode_runner.SlurmRunner,
    multinode_runner.MVAPICHRunner,
]


def commands(*words):
    args = runner.parse_args([*words, "train.py", "--name", "a b"])
    word = runner.encode_world_info(HOSTS)
    for kind in RUNNERS:
        made, environment = kind(args, word, {"one": 2, "two": 2}), {}
        made.add_export("KEY", "value")
        yield made.name, made.get_cmd(environment, HOSTS), environment


def test_starts_each_machines_part_by_commands():
    starts = {"openmpi": ["mpirun", "-n", "4"], "mpich": ["mpirun", "-n", "4"], "impi": ["mpirun", "-ppn", "2"]}
    starts.update(slurm=["srun", "-n", "4"], mvapich=["mpirun", "-np", "4"])
    for name, command, environment in commands():
        assert command[:3] == starts[name] and command[-2:] == ["--rank", name] and command[-3].endswith("/bin/ds_node")
        assert environment["KEY"] == "value" and not {"value", "train.py", "a b"} & set(command)


def test_passes_open_mpi_eth0_or_the_arguments_interface():
    word = runner.encode_world_info(HOSTS)
    for words, interface in ((["x.py"], "eth0"), (["--launcher_arg", "-mca btl_tcp_if_include eth1", "x.py"], "eth1")):
        command = multinode_runner.OpenMPIRunner(runner.parse_args(words), word, HOSTS).get_cmd({}, HOSTS)
        assert {"eth0", "eth1"} & set(command) == {interface}


def test_starts_each_machines_part_by_pdsh():
    args = runner.parse_args(["--master_addr", "10.0.0.1", "--ssh_port", "2222", "train.py", "a b"])
    command, kill, environment = multinode_runner.PDSHRunner(args, runner.encode_world_info(HOSTS)).get_cmd({}, HOSTS)
    assert command[0] == "pdsh" and "one,two" in command and environment["PDSH_RCMD_TYPE"] == "ssh" and kill == []
    assert command[-1] == "%n" and "-p 2222" in environment["PDSH_SSH_ARGS_APPEND"] and "a b" not in command


def test_refuses_flags_that_a_launcher_does_not_honour():
    word = runner.encode_world_info(HOSTS)
    for words in (["-i", "one", "x.py"], ["--num_nodes", "1", "x.py"], ["--num_gpus", "1", "x.py"]):
        for kind in (multinode_runner.OpenMPIRunner, multinode_runner.MPICHRunner, multinode_runner.MVAPICHRunner):
            with pytest.raises(ValueError, match="takes neither"):
                kind(runner.parse_args(words), word, HOSTS)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "$(x)", "one;two", "^hosts", "n[1-2]", "%h", "one,two"])
def test_refuses_names_that_no_machine_has(host):
    args = runner.parse_args(["x.py"])
    for made in (multinode_runner.PDSHRunner(args, ""), multinode_runner.MPICHRunner(args, "", {host: 1})):
        with pytest.raises(ValueError, match="expected a name or an address"):
            made.get_cmd({}, {host: [0]})
    with pytest.raises(ValueError, match="Hostfile line 1: host '"):
        runner._parse_hostfile([f"{host} slots=2"])


def test_passes_variables_unchanged_and_shows_them_quoted():
    made, environment = multinode_runner.SlurmRunner(runner.parse_args(["x.py"]), "", HOSTS), {}
    for value, shown in (("a.b:c", "a.b:c"), ("64(x2)", '"64(x2)"'), ('a "b" $c', r'"a \"b\" \$c"')):
        made.add_export("KEY", value)
        made.get_cmd(environment, HOSTS)
        assert made.exports == {"KEY": shown} and environment["KEY"] == value


def test_allows_filters_that_leave_nothing():
    assert runner.parse_resource_filter(HOSTS, exclude_str="one@two:0,1") == {}
    with pytest.raises(ValueError, match="three"):
        runner.parse_resource_filter(HOSTS, exclude_str="three")


def test_encodes_and_decodes_world_info():
    assert resources.decode_world_info(runner.encode_world_info({"one": 2, "two": [0, 1]})) == HOSTS
    assert resources.decode_world_info(runner.encode_world_info(HOSTS)) == HOSTS


def test_translates_arguments_into_the_programs_command_line():
    args = runner.parse_args(["--num_gpus", "2", "--master_port", "29501", "--module", "-q", "package.train", "--num_gpus", "7"])
    words = runner.program_words(args)
    assert sorted(words[:4]) == ["--master_port=29501", "--module", "--num_gpus=2", "--quiet"]
    assert words[4:] == ["--", "package.train", "--num_gpus", "7"]
    assert runner.program_words(runner.parse_args(["train.py"])) == ["--", "train.py"]
    given = ["--no_ssh", "--node_rank=1", "--hostfile=hosts", "--venv_script=env", "--launcher=ssh", "--launcher_args=-i key"]
    words = runner.program_words(runner.parse_args([*given, "--ssh_port=22", "--max_restarts=0", "--", "train.py"]))
    assert {*given, "--ssh_port=22", "--max_restarts=0"} == set(words[:-2])


def test_has_the_defaults_of_deepspeed():
    args = runner.parse_args(["train.py"])
    numbers = dict.fromkeys(("num_gpus", "num_nodes", "node_rank", "min_elastic_nodes", "max_elastic_nodes"), -1)
    expected = dict(numbers, hostfile=runner.DLTS_HOSTFILE, include="", master_addr="", master_port=29500, ssh_port=None, module=False)
    expected.update(launcher="pdsh", launcher_args="", enable_each_rank_log="None", log_level="info", autotuning="", user_args=[])
    assert {name: getattr(args, name) for name in expected} == expected
    args = launch_module.parse_args(["--world_info=word", "--save_pid=7", "train.py", "-q"])
    expected = ["--no_ssh", "--master_addr=127.0.0.1", "--node_rank=0", "--save_pid", "--world_info=word"]
    assert sorted(launch_module.program_words(args)[:5]) == sorted(expected)
    assert launch_module.program_words(args)[5:] == ["--", "train.py", "-q"]
    with pytest.raises(ValueError, match="world_info"):
        launch_module.program_words(launch_module.parse_args(["train.py"]))


def test_gives_the_program_the_words_as_they_are(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda program, words: started.append(words[1:]))
    monkeypatch.setattr(sys, "argv", ["deepspeed", "--num_g", "2", "--no-such-flag", "train.py"])
    runner.main()
    runner.main("--num_gpus 2 --num_gpus 3 train.py -q")
    assert started == [sys.argv[1:], ["--num_gpus", "2", "--num_gpus", "3", "train.py", "-q"]]


def test_finds_torch_wherever_it_is_installed(monkeypatch):
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    monkeypatch.setattr(os, "execv", lambda program, words: None)
    for known, expected in ((None, libraries), ("/else", f"/else:{libraries}")):
        monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
        if known:
            monkeypatch.setenv("LD_LIBRARY_PATH", known)
        programs.run("deepspeed", [])
        assert os.environ.get("LD_LIBRARY_PATH") == known  # the ranks of the launcher find libraries as before
        scripts.zero_to_fp32()
        assert os.environ["LD_LIBRARY_PATH"] == expected


def test_refuses_contradictions_before_anything_starts():
    for words in ("--num_nodes 1 -i one x.py", "--no_ssh x.py", "--launcher rsh x.py", "--autotuning run x.py"):
        for form in (words, words.split()):
            with pytest.raises(ValueError):
                runner.main(form)


SCRIPT = """
import json, os, sys
place = {key: os.environ[key] for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "MASTER_PORT")}
open(os.path.join(sys.argv[-1], place["RANK"]), "w").write(json.dumps([place, sys.argv[1:-1]]))
if place["RANK"] == "3":
    sys.exit(5)
import time
time.sleep(0 if "2" not in sys.argv[-2:] else 60)
"""


def launch(tmp_path, world, node_rank, word):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    where = [f"--world_info={runner.encode_world_info(world)}", f"--node_rank={node_rank}", "--master_port=29507", "-q"]
    command = [sys.executable, "-m", "deepspeed.launcher.launch", *where, str(script), word, str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ, DS_ACCELERATOR="cpu"))


def test_starts_the_ranks_of_its_machine_by_launch(tmp_path):
    done = launch(tmp_path, {"one": [0], "two": [0, 1]}, 1, "a b")
    assert done.returncode == 0, done.stderr
    place, arguments = json.loads((tmp_path / "2").read_text())
    assert not (tmp_path / "0").exists() and arguments == ["--local_rank=1", "a b"]
    assert place == dict(RANK="2", LOCAL_RANK="1", WORLD_SIZE="3", LOCAL_SIZE="2", CROSS_RANK="1", MASTER_PORT="29507")


def test_ends_the_launch_with_a_failed_ranks_code(tmp_path):
    done = launch(tmp_path, {"one": [0, 1, 2, 3]}, 0, "2")
    assert done.returncode == 5, done.stderr
