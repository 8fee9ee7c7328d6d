"""Converts a checkpoint into a universal one.

Usage: python -m deepspeed.checkpoint.ds_to_universal --input_folder ... --output_folder ...
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.checkpoint.constants import AUTOEP_EXPERT_KEY_PREFIX, AUTOEP_LAYERS_KEY, PARAM_SHAPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_ORDERING = "use_data_before_expert_parallelism"


def parse_arguments(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input_folder", type=str, required=True, help="the folder of a tag")
    parser.add_argument("--output_folder", type=str, required=True, help="the folder of the universal checkpoint")
    parser.add_argument("--num_extract_workers", type=int, default=4, help="threads that read and write")
    parser.add_argument("--num_merge_workers", type=int, default=2, help="is not needed: parameters are written at once")
    parser.add_argument("--keep_temp_folder", action="store_true", help="is not needed: there is no temporary folder")
    parser.add_argument("--no_strict", dest="strict", action="store_false", help="convert what is there of the parameters")
    parser.add_argument("--inject_missing_state", action="store_true", help="is not needed: no state must be in the files")
    return parser.parse_args(args)


def main(args: argparse.Namespace) -> None:
    """Converts a checkpoint into a universal one. args: has the members that parse_arguments() returns. Raises CheckpointError."""
    _core.convert_to_universal(
        str(args.input_folder), str(args.output_folder), int(getattr(args, "num_extract_workers", 4)), bool(getattr(args, "strict", True))
    )


def _aggregate_autoep_zero12_metadata(
    model_state_metadata: Sequence[tuple[str, Mapping[str, Any]]],
) -> tuple[list[dict[str, Any]], list[Any] | None, bool]:
    """Returns (shapes of each file, expert layers or None, order of experts).

    They come from what DeepSpeedCheckpoint has read. Raises RuntimeError if the files' metadata is malformed or contradictory.
    """
    shapes: list[dict[str, Any]] = []
    layers: dict[str, Any] = {}
    orderings: set[bool] = set()
    for path, keys in model_state_metadata:
        _check_kind(keys[PARAM_SHAPES], dict, f"DeepSpeed checkpoint {PARAM_SHAPES} must contain dictionaries in {path}.")
        shapes.append(keys[PARAM_SHAPES])
        _add_layers(path, keys[AUTOEP_LAYERS_KEY], layers)
        _check_kind(keys["ds_config"], dict, f"DeepSpeed checkpoint ds_config must be a dictionary in {path}.")
        ordering = keys["ds_config"].get(_ORDERING, False)
        _check_kind(ordering, bool, f"DeepSpeed checkpoint {_ORDERING} must be a boolean in {path}.")
        orderings.add(ordering)
    if len(orderings) != 1:
        raise RuntimeError(f"DeepSpeed checkpoint {_ORDERING} disagrees across model-state files")
    return shapes, list(layers.values()) or None, orderings.pop()


def _add_layers(path: str, found: Any, layers: dict[str, Any]) -> None:
    if found is None:
        return
    _check_kind(found, list, f"AutoEP metadata must be a list in {path}.")
    for layer in found:
        _check_kind(layer, dict, f"AutoEP layer metadata must contain dictionaries in {path}.")
        prefix = layer.get(AUTOEP_EXPERT_KEY_PREFIX)
        if not isinstance(prefix, str) or not prefix:
            raise RuntimeError(f"AutoEP {AUTOEP_EXPERT_KEY_PREFIX} must be a non-empty string in {path}.")
        if layers.setdefault(prefix, layer) != layer:
            raise RuntimeError(f"Conflicting AutoEP metadata for {AUTOEP_EXPERT_KEY_PREFIX} {prefix!r} in {path}.")


def _check_kind(value: object, kind: type, text: str) -> None:
    if not isinstance(value, kind):
        raise RuntimeError(text)


if __name__ == "__main__":
    main(parse_arguments())
