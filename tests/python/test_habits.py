"""Odd habits of scripts, with an engine alive: failures in the model, workers of loaders, copies, notebooks, evaluation between."""

import copy
import pickle
import sys

import pytest
import torch

import deepspeed
from launching import PROGRAMS, run

sys.path.insert(0, str(PROGRAMS))
from habits import Numbers, fail_once, make_engine, micro_step

BATCH = torch.ones(2, 4), torch.full((2, 3), 5.0)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_trains_on_two_ranks_as_if_nothing_had_happened(stage):
    habits = [dict(), dict(habit="forward"), dict(habit="backward"), dict(habit="eval"), dict(workers=2)]
    habits += [dict(gas=2), dict(gas=2, habit="forward"), dict(gas=2, habit="backward"), dict(gas=2, habit="eval")]
    habits += [dict(habit="forgotten"), dict(habit="destroyed")]
    found = run("habits.py", [dict(stage=stage, **habit) for habit in habits])
    assert len(found[0]) == 6 and all(losses == found[0] for losses in found[1:5])
    assert all(losses == found[5] for losses in found[6:9]) and found[5] != found[0]
    assert found[9][:2] == found[0][:2] and found[9] == found[10]


@pytest.mark.parametrize("stage, is_direct", [(0, False), *((stage, is_direct) for stage in (1, 2, 3) for is_direct in (False, True))])
def test_tells_how_to_continue_after_a_failed_backward(stage, is_direct):
    engine, other = make_engine(stage, gas=2), make_engine(stage, gas=2)
    for each in (engine, other):
        micro_step(each, *BATCH)
    fail_once(engine, BATCH, "backward", is_direct)
    with pytest.raises(deepspeed.DeepSpeedError, match=r"step\(\) after a backward\(\) that failed.*zero_grad"):
        engine.step()
    with pytest.raises(deepspeed.DeepSpeedError, match=r"backward\(\) after a backward\(\) that failed.*zero_grad"):
        micro_step(engine, *BATCH)
    for each in (engine, other):
        each.optimizer.zero_grad()
    assert [micro_step(engine, *BATCH) for _ in range(3)] == [micro_step(other, *BATCH) for _ in range(3)]


def test_leaves_the_window_unchanged_by_a_refused_backward():
    engine = make_engine(2, gas=2)
    micro_step(engine, *BATCH)
    with pytest.raises(deepspeed.DeepSpeedError, match="loss"):
        engine.backward(torch.ones(3, requires_grad=True))
    micro_step(engine, *BATCH)
    assert engine.global_steps == 1


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_refuses_to_copy_an_engine(stage, copied):
    engine = make_engine(stage)
    with pytest.raises(TypeError, match="cannot be copied or pickled.*save_checkpoint"):
        copied(engine)
    assert micro_step(engine, *BATCH) > micro_step(engine, *BATCH)


def test_copies_the_module_for_averages_of_weights():
    engine = make_engine(2)
    average = copy.deepcopy(engine.module)
    before = average.first.weight.detach().clone()
    micro_step(engine, *BATCH)
    assert torch.equal(average.first.weight, before) and not torch.equal(engine.module.first.weight, before)
    average(BATCH[0]).sum().backward()
    assert micro_step(engine, *BATCH) > micro_step(engine, *BATCH)


@pytest.mark.parametrize("stage", [1, 3])
def test_runs_a_notebooks_cell_again(stage):
    def cell():
        engine = make_engine(stage)
        return engine, [micro_step(engine, *BATCH) for _ in range(3)]

    first, losses = cell()
    for _ in range(2):
        assert cell()[1] == losses
    assert micro_step(first, *BATCH) < losses[-1]


def test_keeps_a_loaders_workers_over_epochs():
    engine = make_engine(2)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    losses = [[micro_step(engine, *batch) for batch in loader] for _ in range(2)]
    assert len(losses[0]) == 12 and sum(losses[1]) < sum(losses[0])


def test_leaves_the_scripts_random_numbers_unchanged():
    found = run("random_streams.py")
    assert found["bare"][0] == found["bare"][1]
    assert all(drawn == found["bare"] for drawn in found["stages"])


def test_gives_each_rank_its_own_numbers_by_the_configs_seed():
    first, second = run("random_streams.py")["seed"]
    assert first != second and [first, second] == run("random_streams.py")["seed"]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("gas, in_place", [(1, False), (1, True), (2, False)])
def test_lets_a_module_drop_gradients_of_a_loss_through_two_engines(gas, in_place, stage):
    """Two models train against each other, as in a GAN: zero_grad() of the judge's module drops what the maker's loss left there."""

    def play(engines):
        torch.manual_seed(3)
        maker, judge = torch.nn.Linear(2, 4), torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        players = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (maker, judge)]
        backwards, steps = [lambda loss: (loss / gas).backward()] * 2, [each.step for each in players]
        if engines:
            config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": gas, "gradient_clipping": 0}
            config |= {"zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
            made = [deepspeed.initialize(model=part, optimizer=each, config=config)[0] for part, each in zip((maker, judge), players)]
            backwards, steps = [each.backward for each in made], [each.step for each in made]
        for _ in range(3):
            judge.zero_grad(set_to_none=not in_place)
            for micro in range(gas):
                real, noise = torch.randn(4, 4), torch.randn(4, 2)
                made_up = maker(noise)
                backwards[1](judge(real).square().mean())
                if gas == 1:
                    backwards[1]((judge(made_up.detach()) - 1).square().mean())
                if engines or micro + 1 == gas:
                    steps[1]()
            maker.zero_grad(set_to_none=not in_place)
            for micro in range(gas):
                backwards[0](judge(maker(torch.randn(4, 2))).square().mean())
                if engines or micro + 1 == gas:
                    steps[0]()
        params = [*maker.parameters(), *judge.parameters()]
        with deepspeed.zero.GatheredParameters(params if engines else []):
            return [param.detach().clone() for param in params]

    for ours, torchs in zip(play(engines=True), play(engines=False)):
        torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_drops_gradients_of_two_players_in_windows_of_any_kind(stage):
    """Gradients that another engine's loss leaves are dropped by any means, in fp16 and where the optimizer is on the host."""
    for how in ("module", "engine", "optimizer", "grad"):
        for extra in ({}, {"fp16": {"enabled": True, "loss_scale": 8}}, {"offload": True}):
            found = []
            for meets_other in (True, False):
                config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "gradient_clipping": 0.0}
                config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.1}}
                if "fp16" in extra:
                    config["fp16"] = extra["fp16"]
                if "offload" in extra and stage in (2, 3):
                    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "super_offload": True}
                torch.manual_seed(0)
                parts = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]
                maker, judge = (deepspeed.initialize(model=each, model_parameters=each.parameters(), config=config)[0] for each in parts)
                x = torch.ones(2, 4, dtype=next(parts[1].parameters()).dtype)
                if meets_other:
                    maker.backward(-judge(maker(x)).mean() * 10)
                    if how == "grad":
                        for param in parts[1].parameters():
                            param.grad = None
                    else:
                        {"module": parts[1], "engine": judge, "optimizer": judge.optimizer}[how].zero_grad()
                judge.backward(judge(x).mean())
                judge.step()
                found.append(judge(x).tolist())
            assert found[0] == found[1], (how, extra)
