"""Probes of a pipeline's batches: data, losses, outputs, updates, and what the engine says of itself."""

import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.pipe import PipelineModule
from deepspeed.utils.logging import logger
from probes import main, probe
from small_pipeline import ROWS, WIDTH, batches, expect_close, expect_error, linears, make_engine


@probe
def evaluation_gives_losses_and_outputs():
    layers = linears()
    engine = make_engine(layers)
    model = nn.Sequential(*layers)
    outputs = [model(inputs).detach() for inputs, _ in batches(3)]
    losses = [F.mse_loss(output, labels).item() for output, (_, labels) in zip(outputs, batches(3))]
    is_last = engine.is_last_stage()
    expect_close(engine.eval_batch(batches(2)).item(), sum(losses[:2]) / 2)
    expect_close(engine.eval_batch(batches(3), num_micro_batches=3).item(), sum(losses) / 3)
    loss, logits = engine.eval_batch(batches(2), return_logits=True)
    expect_close(loss.item(), sum(losses[:2]) / 2)
    assert torch.allclose(logits, outputs[1]) if is_last else logits is None
    found = engine.eval_batch(batches(2), bcast_loss=False)
    assert (found is not None) == is_last
    found = engine.eval_batch(batches(2), reduce_output=None, bcast_loss=False)
    assert [round(loss.item(), 5) for loss in found] == [round(loss, 5) for loss in losses[:2]] if is_last else found is None
    found = engine.eval_batch(batches(2), compute_loss=False, reduce_output=None)
    assert all(torch.allclose(*pair) for pair in zip(found, outputs)) if is_last else found is None
    found = engine.eval_batch(batches(2), compute_loss=False)
    assert torch.allclose(found, sum(outputs[:2]) / 2, atol=1e-6) if is_last else found is None
    expect_error(NotImplementedError, lambda: engine.eval_batch(batches(2), reduce_output="max"))
    assert not model.training or not engine.module.training
    engine.train_batch(batches(2))
    assert engine.module.training


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((WIDTH,), index / 10), torch.full((WIDTH,), -index / 10)


@probe
def training_data_are_read_in_order_and_again():
    seen = []
    engine = make_engine(linears(2), training_data=Rows())

    def note(batch):
        seen.extend(round(value.item(), 1) for value in batch[0][:, 0])
        return batch[0] * 2, batch[1]

    engine.set_batch_fn(note)
    for _ in range(2):
        engine.train_batch()
    assert seen == [round(index / 10, 1) for index in [*range(12), *range(4)]], seen
    assert engine.train_batch_size() == 8 and engine.micro_batches == 2
    engine.set_train_batch_size(16)
    assert engine.gradient_accumulation_steps() == engine.micro_batches == 4


@probe
def losses_of_a_model_in_fp64_are_not_rounded():
    loss = 1 + 1e-12  # 1 in fp32
    engine = make_engine([layer.double() for layer in linears()], loss_fn=lambda outputs, labels: outputs.sum() * 0 + labels)
    data = [(inputs.double(), torch.tensor(loss, dtype=torch.float64)) for inputs, _ in batches(2)]
    for found in (engine.train_batch(iter(data)), engine.eval_batch(iter(data))):
        assert found.dtype == torch.float64 and found.item() == loss, (found.dtype, found.item() - loss)


@probe
def parts_that_no_stage_gets_are_warned_of():
    engine = make_engine(linears())
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    for _ in range(2):
        engine.train_batch((*pair, torch.ones(1)) for pair in batches(2))
    logger.removeHandler(handler)
    found = [line for line in lines if "a micro batch has 3 parts" in line]
    assert len(found) == (1 if deepspeed.comm.get_rank() == 0 else 0), lines


class WithLosses(PipelineModule):
    def get_additional_losses(self):
        return {"aux": torch.tensor(2.0 + self.micro_offset % 2)}


@probe
def additional_losses_are_known_on_all_stages():
    engine = make_engine(linears(), kind=WithLosses)
    assert engine.get_additional_losses() is None
    engine.train_batch(batches(2))
    assert engine.get_additional_losses()["aux"].item() == 2.5
    plain = make_engine(linears())
    plain.train_batch(batches(2))
    assert plain.get_additional_losses() is None


@probe
def labels_are_any_objects():
    def loss_fn(outputs, labels):
        return outputs.square().mean() * labels["scale"]

    engine = make_engine(linears(), loss_fn=loss_fn)
    data = [(inputs, {"scale": scale}) for (inputs, _), scale in zip(batches(2), (1.0, 3.0))]
    model_loss = engine.eval_batch(iter(data)).item()
    assert abs(engine.train_batch(iter(data)).item() - model_loss) < 1e-6


@probe
def the_engine_knows_its_place():
    engine = make_engine(linears())
    rank = deepspeed.comm.get_rank()
    assert engine.stage_id == engine.get_pipeline_parallel_rank() == rank
    assert engine.is_first_stage() == (rank == 0) and engine.is_last_stage() == (rank == 1)
    assert engine.is_pipe_parallel and not engine.is_data_parallel and not engine.is_model_parallel
    assert engine.mpu is engine.grid is engine.module.mpu() and engine.dp_world_size == 1
    assert engine.grid.get_pipe_parallel_world_size() == engine.num_stages == 2
    assert engine.module.stage_owner(3) == 1 and engine.module.partitions() == [0, 2, 4]
    replicas = make_engine(linears(), stages=1)
    assert replicas.dp_world_size == 2 and replicas.train_batch_size() == 2 * 2 * ROWS and not replicas.is_pipe_parallel


@probe
def an_optimizer_and_a_schedule_of_the_script_train():
    def make_optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.5)

    def make_schedule(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    engine = make_engine(linears(), optimizer=make_optimizer, lr_scheduler=make_schedule)
    before = [param.detach().clone() for param in engine.module.parameters()]
    for _ in range(2):
        engine.train_batch(batches(2))
    assert engine.lr_scheduler.last_epoch == 2
    assert engine.get_lr() == [0.125]
    assert not any(torch.equal(old, new) for old, new in zip(before, engine.module.parameters()))


if __name__ == "__main__":
    main()
