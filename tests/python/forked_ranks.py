"""Ranks that are forks of a process which has imported the package: the import takes longer than most tests do.

Each rank is a program in an interpreter of its own, which ends as one that was started does. Neighbouring ranks are
forks of two different processes, with other addresses and other hashes, as ranks have them that are started.
"""

import array
import atexit
import ctypes
import faulthandler
import gc
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import weakref

LARGEST_REQUEST = 1 << 20


class ForkedRank:
    """What tests use of subprocess.Popen."""

    def __init__(self, server, request):
        output, its_output = os.pipe()
        self.status, its_status = os.pipe()
        socket.send_fds(server, [json.dumps(request).encode()], [its_output, its_status])
        os.close(its_output)
        os.close(its_status)
        self.stdout = os.fdopen(output, encoding="utf-8", errors="replace")
        self.pid = self._next_number()
        self.returncode = None

    def _next_number(self):
        found = os.read(self.status, 4)
        assert found, "the process that starts ranks has ended"
        return array.array("i", found)[0]

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"rank (process {self.pid})", timeout)
            self.returncode = self._next_number()
            os.close(self.status)
        return self.returncode

    def poll(self):
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


servers = {}


def start_fork(command, env, cwd, neighbour):
    """Starts the program of a command; `neighbour` is 0 or 1, which process it is a fork of."""
    if neighbour not in servers:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen([sys.executable, __file__], stdin=its, env=dict(os.environ, OMP_NUM_THREADS="1"))
        its.close()
        atexit.register(lambda: (ours.close(), process.wait()))
        servers[neighbour] = ours
    return ForkedRank(servers[neighbour], dict(command=list(map(str, command)), env=env, cwd=str(cwd or os.getcwd())))


def take_request():
    """Forks a rank for each request; returns in the rank alone, with what it asks for."""
    requests = socket.socket(fileno=os.dup(0))
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    statuses = {}  # of the ranks that run: where each one's status is awaited
    while True:
        ready = select.select([requests, ended], [], [])[0]
        if ended in ready:
            os.read(ended, 64)
            for rank, status in list(statuses.items()):
                pid, code = os.waitpid(rank, os.WNOHANG)
                if pid:
                    write_number(statuses.pop(rank), os.waitstatus_to_exitcode(code))
                    os.close(status)
        if requests not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 2)
        if not message:  # the tests have ended
            for rank in statuses:
                os.kill(rank, signal.SIGKILL)
            os._exit(0)
        output, status = descriptors
        rank = os.fork()
        if rank == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            for descriptor in (nothing, ended, wakes, requests.detach(), *descriptors, *statuses.values()):
                os.close(descriptor)
            return json.loads(message)
        write_number(status, rank)
        statuses[rank] = status
        os.close(output)


def write_number(descriptor, number):
    try:
        os.write(descriptor, array.array("i", [number]))
    except BrokenPipeError:  # nobody waits for this rank
        pass


def become(request):
    """Makes this process what one that was started with the command would be; returns the program's code."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = request["command"]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
    faulthandler.enable()
    # What was loaded since ends as it does elsewhere; to take down torch's table of operators takes longer than most tests.
    library = ctypes.CDLL(None)
    library.on_exit(library._exit, None)
    library.__cxa_atexit(library.fflush, None, None)  # before that
    return compile(pathlib.Path(sys.argv[0]).read_bytes(), sys.argv[0], "exec")


if __name__ == "__main__":
    # What ranks have in common. Optimizers of torch load its compiler, which takes a second.
    import torch._dynamo  # noqa: F401

    import deepspeed  # noqa: F401

    # To take it down takes a second, and is not what a rank's end is about.
    gc.freeze()
    for finalizer in weakref.finalize._registry:
        finalizer.atexit = False
    __code = become(take_request())
    __file__ = sys.argv[0]
    exec(__code, globals())  # the globals of this module are those of the program's now
