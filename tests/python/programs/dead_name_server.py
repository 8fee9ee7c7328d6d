"""Runs a program's ranks in a network of their own, whose name server counts what it is asked and answers nothing.

Start it by `unshare -m -n`. Its last line tells how often the server was asked, and at which addresses the program
listened beyond those of loopback.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from launching import finish, start

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def bring_loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def dead_server():
    resolver = tempfile.NamedTemporaryFile("w")
    resolver.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    resolver.flush()
    subprocess.run(["mount", "--bind", resolver.name, "/etc/resolv.conf"], check=True)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    server.setblocking(False)
    return server, resolver


def questions(server):
    asked = []
    while True:
        try:
            asked.append(repr(server.recv(512)[12:60]))
        except BlockingIOError:
            return asked


def main():
    bring_loopback_up()
    server, resolver = dead_server()
    with contextlib.suppress(socket.gaierror):
        socket.getnameinfo(("::ffff:127.0.0.1", 9), 0)
    is_asked = len(questions(server)) > 0
    outcomes = finish(start(sys.argv[1], *sys.argv[2:]))
    for status, output in outcomes:
        assert status == 0, output[-4000:]
    listeners = [line.split()[1:] for _, output in outcomes for line in output.splitlines() if line.startswith("LISTENS")]
    result = {"is_asked": is_asked, "questions": questions(server), "listeners": sorted({word for words in listeners for word in words})}
    print("RESULT " + json.dumps(result), flush=True)
    assert os.path.exists(resolver.name)


if __name__ == "__main__":
    main()
