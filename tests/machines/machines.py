"""Machines for tests: network namespaces with names, addresses and ssh servers of their own, on a bridge.

The whole test runs in namespaces of its own (enter()), so nothing of it outlives its end, and nothing outside is touched.
"""

import atexit
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

INSIDE = "DEEPSPEED_TEST_MACHINES"
NETWORK = "10.77.0"
SPACES = ["unshare", "--net", "--mount", "--uts", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]


def why_not():
    """Returns what this computer lacks for such machines; "" where it lacks nothing."""
    if os.geteuid() != 0:
        return "not root"
    for program in ("unshare", "nsenter", "ip", "tc", "ssh", "ssh-keygen", "/usr/sbin/sshd"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tried = subprocess.run([*SPACES, "ip", "link", "add", "try0", "type", "bridge"], capture_output=True, text=True)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def enter():
    """Runs this program again in namespaces of its own, and ends with its exit status."""
    if os.environ.get(INSIDE):
        return
    made = subprocess.run([*SPACES, sys.executable, *sys.argv], env=dict(os.environ, **{INSIDE: "1"}))
    sys.exit(made.returncode if made.returncode >= 0 else 128 - made.returncode)


def sh(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


class Machine:
    """Is a host with an ssh server: the processes of a network namespace."""

    def __init__(self, name, number, folder):
        self.name, self.address = name, f"{NETWORK}.{10 + number}"
        keeper = ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name} && exec sleep infinity"]
        self._keeper = subprocess.Popen(keeper)
        wait_until(lambda: pathlib.Path(f"/proc/{self._keeper.pid}/comm").read_text().strip() == "sleep")
        self._space = ["nsenter", "-t", str(self._keeper.pid), "-n", "-u"]
        self.port = f"port{number}"
        sh("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self._keeper.pid))
        sh("ip", "link", "set", self.port, "master", "bridge0", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.run("ip", "link", "set", device, "up")
        self._sshd = subprocess.Popen(
            [*self._space, "/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL
        )

    def run(self, *words):
        return sh(*self._space, *words)

    def start(self, *words, **options):
        return subprocess.Popen([*self._space, *words], **options)

    def set_link(self, state):
        """Takes the network away ("down"), or gives it back ("up")."""
        sh("ip", "link", "set", self.port, state)

    def limit_link(self, rate):
        """Lets no more bits a second ("100mbit") come to this machine; as many as there are (None)."""
        words = ["replace", "dev", self.port, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms"]
        sh("tc", "qdisc", *(words if rate else ["del", "dev", self.port, "root"]))

    def processes(self, word):
        """Returns the ids of processes of this machine whose command line has the word."""
        own = network(self._keeper.pid)
        return [pid for pid in processes(word) if network(pid) == own]

    def send(self, number):
        """Sends a signal to all processes but the namespace's keeper, as if the machine hung (SIGSTOP)."""
        own = network(self._keeper.pid)
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self._keeper.pid and network(entry.name) == own:
                try:
                    os.kill(int(entry.name), number)
                except ProcessLookupError:
                    pass


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def variables(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def all_processes():
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def network(pid):
    """Returns the network namespace of a process, which is the machine that it runs on."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_below(pid, top):
    """Whether a process is a child of another one, or a child of its child, and so on."""
    while pid not in (0, top):
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == top


def processes(word):
    """Returns the ids of all processes whose command line has the word, or a word that ends with it."""
    found = []
    for pid in all_processes():
        if pid != os.getpid() and any(part.endswith(word) for part in command_line(pid)) and is_alive(pid):
            found.append(pid)
    return found


def wait_until(holds, what="", patience=120):
    until = time.monotonic() + patience
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.05)


def make(count):
    """Returns (folder, [machines]): a bridge, keys, and machines worker-0, worker-1 and so on."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="deepspeed_machines_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    sh("hostname", "launcher")
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "bridge0", "type", "bridge")
    sh("ip", "addr", "add", f"{NETWORK}.1/24", "dev", "bridge0")
    sh("ip", "link", "set", "bridge0", "up")
    names = [f"worker-{number}" for number in range(count)]
    lines = ["127.0.0.1 localhost", f"{NETWORK}.1 launcher", f"{NETWORK}.250 nowhere"]
    lines += [f"{NETWORK}.{10 + number} {name}" for number, name in enumerate(names)]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    sh("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    own = pathlib.Path.home() / ".bashrc"  # bash reads it at each command by ssh, whatever it holds
    if own.exists():
        (folder / "nothing").touch()
        sh("mount", "--bind", str(folder / "nothing"), str(own))
    ssh = pathlib.Path.home() / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    sh("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(ssh))
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "id_ed25519"))
    shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
    (ssh / "config").write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n")
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key"))
    (folder / "sshd_config").write_text(
        f"HostKey {folder / 'host_key'}\nPermitRootLogin yes\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPidFile none\nMaxStartups 100\n"
    )
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    machines = [Machine(name, number, folder) for number, name in enumerate(names)]
    for machine in machines:
        wait_until(
            lambda: subprocess.run(["ssh", "-o", "ConnectTimeout=1", machine.name, "true"], capture_output=True).returncode == 0,
            machine.name,
        )
    return folder, machines


def end_all(word):
    for pid in processes(word):
        os.kill(pid, signal.SIGKILL)


def start_slurm(folder, hosts):
    """Starts Slurm's daemons: the controller here, a node on each machine."""
    place = folder / "slurm"
    place.mkdir()
    nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs=4 State=UNKNOWN" for host in hosts)
    (place / "slurm.conf").write_text(
        f"""ClusterName=test
SlurmctldHost=launcher(10.77.0.1)
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}
SlurmdSpoolDir={place}/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
"""
    )
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    os.environ["SLURM_CONF"] = str(place / "slurm.conf")
    munge = pathlib.Path("/run/munge")
    munge.mkdir(exist_ok=True)
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(munge))
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    sh(
        "munged",
        "--force",
        f"--key-file={key}",
        f"--pid-file={place}/munged.pid",
        f"--log-file={place}/munged.log",
        f"--seed-file={place}/munged.seed",
    )
    sh("slurmctld", "-f", str(place / "slurm.conf"))
    for host in hosts:
        (place / host.name).mkdir()
        host.run("slurmd", "-N", host.name, "-f", str(place / "slurm.conf"))
    wait_until(lambda: "idle" in sh("sinfo", "-h", "-o", "%T") and "unk" not in sh("sinfo", "-h", "-o", "%T"), "Slurm's nodes")
