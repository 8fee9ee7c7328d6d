"""Which slots of which machines take part: hostfiles, and the filters of --include and --exclude."""

from __future__ import annotations

import base64
import json
import os
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LINE = re.compile(r"(\S+)\s+slots=(\d+)")
_HOST = re.compile(r"([A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.:-]*", re.ASCII)


def check_host(host: str, where: str = "") -> None:
    """Raises ValueError for a name that no machine has: ssh and pdsh would take it for an option or a pattern."""
    if not _HOST.fullmatch(host):
        raise ValueError(f"{where}host {host!r}: expected a name or an address, of letters, digits and -._: that begins with no sign")


def fetch_hostfile(hostfile_path: str) -> OrderedDict[str, int] | None:
    """Returns {host: number of slots}; None where the file does not exist."""
    if not os.path.isfile(hostfile_path):
        logger.warning("Unable to find hostfile, will proceed with training with local resources only.")
        return None
    with open(hostfile_path) as file:
        return _parse_hostfile(file.readlines(), hostfile_path)


def _parse_hostfile(hostfile_lines: Iterable[str], name: str = "Hostfile") -> OrderedDict[str, int]:
    """Reads lines 'HOST slots=N'; empty lines and those that start with # are skipped. Raises ValueError."""
    pool = OrderedDict()
    for number, line in enumerate(map(str.strip, hostfile_lines), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"{name} line {number}: bad entry {line!r}, expected: HOST slots=N")
        host, slots = match.groups()
        check_host(host, f"{name} line {number}: ")
        if host in pool:
            raise ValueError(f"{name} line {number}: {host} has another entry above, expected one")
        pool[host] = int(slots)
    if not pool:
        raise ValueError(f"{name} names no machine, expected lines: HOST slots=N")
    return pool


def parse_node_config(node_config: str) -> tuple[str, list[int]]:
    """Returns (host, [slots]) of "HOST" or "HOST:0,2"; no slot means all of them."""
    if ":" not in node_config:
        return node_config, []
    host, slots = node_config.split(":")
    return host, [int(slot) for slot in slots.split(",")]


def parse_node_config_list(node_config_list: str) -> dict[str, list[int]]:
    """Returns {host: [slots, ascending]} of specs that are joined by @."""
    found: dict[str, set[int]] = {}
    for spec in node_config_list.split("@"):
        host, slots = parse_node_config(spec)
        found.setdefault(host, set()).update(slots)
    return {host: sorted(slots) for host, slots in found.items()}


def parse_resource_filter(
    host_info: Mapping[str, Sequence[int]], include_str: str = "", exclude_str: str = ""
) -> Mapping[str, Sequence[int]]:
    """Returns {host: [slots]} after one of both filters, in the order of host_info. Raises ValueError for what it lacks."""
    if include_str and exclude_str:
        raise ValueError("include_str and exclude_str are mutually exclusive.")
    if not include_str and not exclude_str:
        return host_info
    named = parse_node_config_list(include_str or exclude_str)
    _check_named(host_info, named)
    kept = OrderedDict()
    for host, slots in host_info.items():
        chosen = (named[host] or slots) if host in named else []
        left = [slot for slot in slots if (slot in chosen) == bool(include_str)]
        if left:
            kept[host] = left
    return kept


def _check_named(host_info: Mapping[str, Sequence[int]], named: Mapping[str, Sequence[int]]) -> None:
    for host, slots in named.items():
        if host not in host_info:
            raise ValueError(f"Hostname '{host}' not found in hostfile")
        for slot in slots:
            if slot not in host_info[host]:
                raise ValueError(f"No slot '{slot}' specified on host '{host}'")


def parse_inclusion_exclusion(resource_pool: Mapping[str, int], inclusion: str, exclusion: str) -> Mapping[str, Sequence[int]]:
    """Filters {host: number of slots}. An included host has the slots that the inclusion names, else all of its own."""
    named = parse_node_config_list(inclusion)
    active = OrderedDict((host, named.get(host) or list(range(count))) for host, count in resource_pool.items())
    return parse_resource_filter(active, include_str=inclusion, exclude_str=exclusion)


def encode_world_info(world_info: Mapping[str, Sequence[int]]) -> str:
    """Returns {host: slots} as a word that --world_info of deepspeed.launcher.launch takes."""
    return base64.urlsafe_b64encode(json.dumps(world_info).encode()).decode()


def decode_world_info(word: str) -> dict[str, list[int]]:
    world: dict[str, list[int]] = json.loads(base64.urlsafe_b64decode(word))
    return world
