"""Probes of what a pipeline refuses, and of errors of the script's own: their types, texts and other stages."""

import os

import torch
import torch.nn as nn

import deepspeed
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.pipe.module import PipelineError
from probes import main, probe
from small_pipeline import ROWS, WIDTH, batches, expect_error, linears, make_engine


class Fails(nn.Linear):
    where = None

    def forward(self, inputs):
        outputs = super().forward(inputs)
        if Fails.where == "forward":
            raise KeyError("the layer's own")
        if Fails.where == "backward":
            outputs.register_hook(self.fail)
        return outputs

    def fail(self, gradient):
        raise KeyError("the layer's own")


@probe
def an_error_of_a_layer_keeps_its_type_and_ends_the_other_stage():
    for where, stage in (("forward", 1), ("backward", 0)):
        layers = linears(2)
        layers[stage] = Fails(WIDTH, WIDTH)
        engine = make_engine(layers)
        engine.train_batch(batches(2))
        Fails.where = where
        if engine.stage_id == stage:
            error = expect_error(KeyError, lambda: engine.train_batch(batches(2)), "the layer's own")
            if where == "forward" and hasattr(error, "__notes__"):
                assert f"This was in layer {stage} (Fails) of stage {stage} of 2, which was given ({ROWS}, {WIDTH})" in error.__notes__[0]
        else:
            expect_error(deepspeed.CommError, lambda: engine.train_batch(batches(2)), f"rank {stage}", "the layer's own")
        Fails.where = None


@probe
def an_error_of_the_loss_or_of_a_constructor_says_where_it_was():
    def loss_fn(outputs, labels):
        raise KeyError("the loss's own")

    engine = make_engine(linears(2), loss_fn=loss_fn)
    kind = KeyError if engine.is_last_stage() else deepspeed.CommError
    error = expect_error(kind, lambda: engine.train_batch(batches(2)), "the loss's own")
    if engine.is_last_stage():
        assert f"This was in loss_fn of the PipelineModule, which was given the outputs ({ROWS}, {WIDTH})" in error.__notes__[0]
    for method in ("uniform", "parameters"):
        layers = [LayerSpec(nn.Linear, WIDTH, -1), LayerSpec(nn.Linear, WIDTH, "text")]
        error = expect_error((RuntimeError, TypeError), lambda: PipelineModule(layers, num_stages=2, partition_method=method), "")
        index = deepspeed.comm.get_rank() if method == "uniform" else 0
        assert error.__notes__ == [f"This was in the constructor of layer {index} (Linear)."], error.__notes__


@probe
def data_that_end_between_batches_raise_stop_iteration():
    engine = make_engine(linears())
    data = batches(4)
    engine.train_batch(data)
    engine.train_batch()
    expect_error(StopIteration, engine.train_batch)
    expect_error(deepspeed.UsageError, lambda: engine.train_batch(batches(1)), "1 of the 2 micro batches")
    expect_error(deepspeed.UsageError, lambda: engine.eval_batch(None), "need data")
    engine.train_batch(batches(2))
    assert engine.global_steps == 3


@probe
def an_error_of_the_data_keeps_its_type():
    def data():
        yield next(batches(1))
        raise LookupError("the data's own")

    engine = make_engine(linears())
    is_first = engine.is_first_stage()
    expect_error(LookupError if is_first else deepspeed.DeepSpeedError, lambda: engine.train_batch(data() if is_first else batches(2)))
    engine.train_batch(batches(2))


@probe
def a_loss_that_is_no_scalar_is_an_error():
    engine = make_engine(linears(), loss_fn=None)
    kind = deepspeed.UsageError if engine.is_last_stage() else deepspeed.CommError
    expect_error(kind, lambda: engine.train_batch(batches(2)), "expected a scalar")


@probe
def calls_of_a_micro_batch_are_refused():
    engine = make_engine(linears())
    assert isinstance(engine, PipelineEngine) and isinstance(engine, deepspeed.DeepSpeedEngine)
    for call in (engine.forward, engine.backward, engine.step, engine.scale, engine.allreduce_gradients):
        expect_error(PipelineError, call, "Only train_batch() is accessible in pipeline mode.")
    with torch.no_grad():
        expect_error(RuntimeError, lambda: engine.train_batch(batches(2)), "train_batch() requires gradients enabled")
    for scope in (engine.no_sync(), engine.coalesce_grad_reduction()):
        expect_error(NotImplementedError, scope.__enter__, "pipeline parallelism")
    assert not engine.is_gradient_accumulation_boundary()


@probe
def weights_of_all_stages_in_one_file_are_the_converters_work():
    engine = make_engine(linears())
    expect_error(NotImplementedError, lambda: engine.save_16bit_model(os.getcwd()), "zero_to_fp32")


@probe
def stages_that_do_not_fit_are_errors():
    expect_error(RuntimeError, lambda: PipelineModule(linears()), "must provide num_stages or topology")
    expect_error(RuntimeError, lambda: PipelineModule(linears(6), num_stages=3), "must divide distributed world size")
    expect_error(RuntimeError, lambda: PipelineModule(linears(1), num_stages=2), "1 layers for 2 stages")
    expect_error(NotImplementedError, lambda: PipelineModule(linears(), num_stages=2, partition_method="nonsense"))
    expect_error(RuntimeError, lambda: PipelineModule(linears(), num_stages=2, partition_method="type:conv"), "no valid layers")
    expect_error(deepspeed.ConfigError, lambda: make_engine(linears(), config={"zero_optimization": {"stage": 3}}), "stage 3")


if __name__ == "__main__":
    main()
