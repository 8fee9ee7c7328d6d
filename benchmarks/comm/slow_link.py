"""Makes two network devices of this machine that are the ends of a slow link, for kernels without netem.

    python slow_link.py DEVICE DEVICE --rate 100e6 --delay 0.002

What is sent into one device comes out of the other one after the delay (seconds) and the time that its bits take at the rate (bits a
second); a direction keeps what waits for less than --queue seconds and drops the rest. The devices, which may be moved to other network
namespaces, live as long as the program, which prints a line once they are there. Wants root and /dev/net/tun.
"""

import argparse
import collections
import fcntl
import os
import select
import struct
import time

SET_DEVICE, WITHOUT_FRAMES, WITHOUT_HEADER = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
LARGEST_PACKET = 65536


def open_device(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, SET_DEVICE, struct.pack("16sH22x", name.encode(), WITHOUT_FRAMES | WITHOUT_HEADER))
    return device


class Direction:
    """Carries packets from one device to another one."""

    def __init__(self, source, target, options):
        self.source, self.target, self.options = source, target, options
        self.free_at = 0.0  # when the last packet has left
        self.under_way = collections.deque()  # of arrival and packet

    def take(self):
        while True:
            try:
                packet = os.read(self.source, LARGEST_PACKET)
            except BlockingIOError:
                return
            except OSError:  # The device is not up yet.
                time.sleep(0.01)
                return
            now = time.monotonic()
            begin = max(now, self.free_at)
            if begin - now > self.options.queue:
                continue
            self.free_at = begin + 8 * len(packet) / self.options.rate
            self.under_way.append((self.free_at + self.options.delay, packet))

    def deliver(self):
        while self.under_way and self.under_way[0][0] <= time.monotonic():
            try:
                os.write(self.target, self.under_way.popleft()[1])
            except OSError:
                pass  # The device is not up, or has no room: a link loses such packets as well.

    def next_arrival(self):
        return self.under_way[0][0] if self.under_way else float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs=2)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--delay", type=float, required=True)
    parser.add_argument("--queue", type=float, default=0.4)
    options = parser.parse_args()
    ends = [open_device(name) for name in options.devices]
    directions = [Direction(ends[0], ends[1], options), Direction(ends[1], ends[0], options)]
    print("The devices are there.", flush=True)
    while True:
        wait = min(direction.next_arrival() for direction in directions) - time.monotonic()
        select.select(ends, [], [], None if wait == float("inf") else max(wait, 0))
        for direction in directions:
            direction.take()
            direction.deliver()


if __name__ == "__main__":
    main()
