"""Micro batches of at most so many tokens, the rates that follow their size, and the files of lengths."""

import numpy as np
import pytest
import torch

import deepspeed
from deepspeed.runtime.data_pipeline.data_sampling.sample_lengths import read_lengths, write_lengths
from deepspeed.runtime.data_pipeline.data_sampling.token_batches import batch_by_seqlens
from deepspeed.runtime.data_pipeline.data_sampling.variable_batch_lr import scale_lr
from deepspeed.runtime.data_pipeline.data_sampling.variable_batch_size_and_lr import (
    get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed,
)

LENGTHS = [3, 5, 2, 9, 4, 4, 1, 6, 2, 7]


class Rows(torch.utils.data.Dataset):
    """Has a row of as many ones as its length says."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return torch.ones(LENGTHS[index])


def collate(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def make_engine(batching, **data):
    config = {
        "train_batch_size": 2,
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
        "data_efficiency": {
            "enabled": True,
            "data_sampling": {"dynamic_batching": {"enabled": True, "max_tokens": 10, **batching}, **data},
        },
    }
    model = torch.nn.Linear(1, 1)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train_over(engine, loader):
    """Returns of each step its samples and its rate."""
    steps, samples = [], 0
    for batch in loader:
        samples += len(batch)
        engine.backward(engine(batch.sum(1, keepdim=True)).mean())
        rate = engine.optimizer.param_groups[0]["lr"]
        engine.step()
        if engine.was_step_applied():
            steps.append((samples, rate))
            samples = 0
    return steps


def test_takes_samples_in_turn_while_they_fit():
    packed, sizes, longest = batch_by_seqlens(LENGTHS, 10)
    assert packed == [(0, [0, 1, 2]), (1, [3]), (2, [4, 5, 6]), (3, [7, 8])]
    assert sizes == [3, 1, 3, 2] and longest == [5, 9, 4, 6]


def test_fills_a_batch_with_whole_steps_of_equal_micro_batches():
    packed, sizes, longest = batch_by_seqlens(
        LENGTHS, 10, sequence_picking_order="seqlen", effective_batch_size=2, required_microbatches_of_same_size=True
    )
    assert [len(samples) for _, samples in packed] == [3, 3, 1, 1] and sizes == [6, 2] and longest == [4, 6]


def test_refuses_unknown_options_and_too_few_micro_batches():
    with pytest.raises(deepspeed.DeepSpeedError, match="sequence_picking_order: got 'any', expected one of dataloader, random, seqlen"):
        batch_by_seqlens(LENGTHS, 10, sequence_picking_order="any")
    with pytest.raises(deepspeed.DeepSpeedError, match="make 4 micro batches of at most 10 tokens, expected 8 at least"):
        batch_by_seqlens(LENGTHS, 10, effective_batch_size=8)
    with pytest.raises(deepspeed.DeepSpeedError, match="lr_scaling_method: got 'cubic'"):
        scale_lr(2, 4, method="cubic")


def test_scales_rates_by_the_size_of_a_batch():
    assert scale_lr(2, 8, 0.1) == pytest.approx(0.4) and scale_lr(2, 8, 0.1, "sqrt") == pytest.approx(0.2)
    assert scale_lr(2, 8, 0.1, None) == scale_lr(2, 8, 0.1, "none") == 0.1


def test_keeps_lengths_in_files(tmp_path):
    write_lengths(str(tmp_path / "seqlen" / "x"), LENGTHS)
    assert read_lengths(str(tmp_path / "seqlen" / "x")).tolist() == LENGTHS
    (tmp_path / "seqlen" / "x.bin").write_bytes(np.array([1], dtype=np.int64).tobytes())
    with pytest.raises(deepspeed.DeepSpeedError, match=r"x\.bin: has 1 lengths, expected 10; delete it"):
        read_lengths(str(tmp_path / "seqlen" / "x"))
    (tmp_path / "seqlen" / "x.idx").write_bytes(b"nothing")
    with pytest.raises(deepspeed.DeepSpeedError, match=r"x\.idx: is no index of samples"):
        read_lengths(str(tmp_path / "seqlen" / "x"))


@pytest.mark.parametrize("given", [True, False])
def test_trains_an_engine_over_them(given, tmp_path):
    engine = make_engine({"metrics_path": str(tmp_path)})
    lengths = dict(dataset_seqlens=LENGTHS) if given else dict(batch_seqlens_fn=lambda rows: (rows != 0).sum(1))
    loader, schedule, arguments = get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(
        Rows(), engine, dataloader_collate_fn=collate, **lengths
    )
    engine.lr_scheduler = schedule
    for _ in range(2):
        schedule.step(0)
        assert train_over(engine, loader) == [(4, 1.0), (5, 1.25)]
    assert [len(batch) for batch in engine.deepspeed_io(**arguments)] == [3, 1, 3, 2]
    assert (tmp_path / "seqlen" / "seqlen_sample_to_metric.idx").exists() is not given
    if not given:  # the files are read now
        again = get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(Rows(), engine, dataloader_collate_fn=collate)
        assert [len(batch) for batch in again[0]] == [3, 1, 3, 2]


def test_requires_lengths(tmp_path):
    engine = make_engine({"metrics_path": str(tmp_path)})
    with pytest.raises(deepspeed.DeepSpeedError, match="pass dataset_seqlens or batch_seqlens_fn"):
        get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(Rows(), engine)
    with pytest.raises(deepspeed.DeepSpeedError, match="dynamic_batching.max_tokens is missing"):
        get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(Rows(), make_engine({"max_tokens": None}), LENGTHS)


def test_refuses_curricula_and_a_disabled_section():
    with pytest.raises(deepspeed.DeepSpeedError, match="data_sampling.curriculum_learning.enabled"):
        make_engine({}, curriculum_learning={"enabled": True})
    with pytest.raises(deepspeed.DeepSpeedError, match="data_efficiency.enabled"):
        make_engine({"enabled": False})
