"""Probes of state_dict() and load_state_dict() where the ranks own parts of the parameters, at all stages."""

import copy

import torch

import deepspeed
from probes import main, probe

KINDS = {
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.05),
    "NAdam": lambda params: torch.optim.NAdam(params, lr=0.05),
}


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))


def make_engine(stage, model, optimizer):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def batch(step):
    return torch.randn(2, 5, generator=torch.Generator().manual_seed(step))


def train(engine, first, last):
    losses = []
    for step in range(first, last):
        loss = engine(batch(step)).square().sum()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def train_plainly(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        loss = model(batch(step)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@probe
def states_of_whole_parameters_go_on():
    for make_optimizer in KINDS.values():
        model = make_model()
        optimizer = make_optimizer(model.parameters())
        train_plainly(model, optimizer, 0, 3)
        before = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
        expected = train_plainly(model, optimizer, 3, 6)
        for stage in (0, 1, 2, 3):
            for how in ("initialize", "load_state_dict"):
                model, state = copy.deepcopy(before)
                optimizer = make_optimizer(model.parameters())
                if how == "initialize":
                    optimizer.load_state_dict(state)
                engine = make_engine(stage, model, optimizer)
                if how == "load_state_dict":
                    engine.optimizer.load_state_dict(state)
                torch.testing.assert_close(train(engine, 3, 6), expected, rtol=1e-5, atol=1e-7)


@probe
def parts_go_on_to_the_bit():
    for make_optimizer in KINDS.values():
        for stage in (0, 1, 2, 3):
            model = make_model()
            engine = make_engine(stage, model, make_optimizer(model.parameters()))
            train(engine, 0, 3)
            state = copy.deepcopy(engine.optimizer.state_dict())
            weights = copy.deepcopy(engine.module_state_dict()) if stage == 0 else None  # from stage 1 on the masters are in the state
            expected = train(engine, 3, 6)
            model = make_model()
            engine = make_engine(stage, model, make_optimizer(model.parameters()))
            if stage == 0:
                engine.load_module_state_dict(weights)
            engine.optimizer.load_state_dict(state)
            assert train(engine, 3, 6) == expected, f"stage {stage}"


@probe
def the_state_of_another_rank_is_refused():
    model = make_model()
    engine = make_engine(2, model, KINDS["AdamW"](model.parameters()))
    train(engine, 0, 1)
    state = engine.optimizer.state_dict()
    try:
        engine.optimizer.load_state_dict(dict(state, rank=1 - state["rank"]))
        raise AssertionError("it was taken")
    except deepspeed.DeepSpeedError as error:
        assert f"the state is of rank {1 - state['rank']}, this is {state['rank']}" in str(error)


if __name__ == "__main__":
    main()
