"""Chooses slots of machines: by hostfiles and the filters --include and --exclude. The core parses them."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def fetch_hostfile(hostfile_path: str) -> OrderedDict[str, int] | None:
    """Returns {host: number of slots}; None if the file does not exist."""
    if not os.path.isfile(hostfile_path):
        logger.warning("Unable to find hostfile, will proceed with training with local resources only.")
        return None
    with open(hostfile_path) as file:
        return _parse_hostfile(file.readlines(), hostfile_path)


def _parse_hostfile(hostfile_lines: Iterable[str], name: str = "Hostfile") -> OrderedDict[str, int]:
    """Parses lines 'HOST slots=N'. Empty lines and those that begin with # are skipped. Raises ValueError."""
    return OrderedDict(_core.parse_hostfile("\n".join(map(str.strip, hostfile_lines)), name))


def parse_node_config(node_config: str) -> tuple[str, list[int]]:
    """Returns (host, [slots]) of "HOST" or "HOST:0,2"; no slots mean all of them."""
    ((host, slots),) = _core.parse_node_specs(node_config)
    return host, slots


def parse_node_config_list(node_config_list: str) -> dict[str, list[int]]:
    """Returns {host: [slots, ascending]} of specs that are joined by @."""
    return dict(_core.parse_node_specs(node_config_list))


def parse_resource_filter(
    host_info: Mapping[str, Sequence[int]], include_str: str = "", exclude_str: str = ""
) -> Mapping[str, Sequence[int]]:
    """Returns {host: [slots]} after one of the filters, in the order of host_info.

    The result may be empty. Raises ValueError for hosts or slots that host_info lacks.
    """
    if include_str and exclude_str:
        raise ValueError("include_str and exclude_str are mutually exclusive.")
    if not include_str and not exclude_str:
        return host_info
    return OrderedDict(_core.filter_hosts(list(host_info.items()), include_str, exclude_str))


def parse_inclusion_exclusion(resource_pool: Mapping[str, int], inclusion: str, exclusion: str) -> Mapping[str, Sequence[int]]:
    """Filters {host: number of slots}. An included host has the slots that the inclusion names, otherwise all of its slots."""
    named = parse_node_config_list(inclusion) if inclusion else {}
    active = OrderedDict((host, named.get(host) or list(range(count))) for host, count in resource_pool.items())
    return parse_resource_filter(active, include_str=inclusion, exclude_str=exclusion)


def encode_world_info(world_info: Mapping[str, int | Sequence[int]]) -> str:
    """Encodes {host: slots, or their number} for --world_info of deepspeed.launcher.launch."""
    return _core.encode_world_info([(host, range(slots) if isinstance(slots, int) else slots) for host, slots in world_info.items()])


def decode_world_info(word: str) -> dict[str, list[int]]:
    return dict(_core.decode_world_info(word))
