"""Runs a DeepSpeedTrial of Determined on CPU ranks, without a cluster."""

import json
import os
import sys

import determined  # noqa: F401
import torch
from determined import core, pytorch
from determined.pytorch import deepspeed as det_deepspeed

import deepspeed

# Determined asks for a GPU; the device is the one thing that is replaced.
det_deepspeed.DeepSpeedTrialContext._init_device = lambda self: setattr(self, "device", torch.device("cpu"))


class Trial(det_deepspeed.DeepSpeedTrial):
    def __init__(self, context, stage):
        self.context = context
        self.losses = []
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        config = {
            "train_batch_size": 16,
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        }
        engine = deepspeed.initialize(
            model=model, config=det_deepspeed.overwrite_deepspeed_config(config, {}), model_parameters=model.parameters()
        )[0]
        self.engine = context.wrap_model_engine(engine)

    def build_training_data_loader(self):
        data = [(torch.tensor([index / 64.0]), torch.tensor([index / 32.0])) for index in range(64)]
        return pytorch.DataLoader(data, batch_size=self.context.get_train_micro_batch_size_per_gpu())

    build_validation_data_loader = build_training_data_loader

    def _loss(self, iterator):
        inputs, targets = self.context.to_device(next(iterator))
        return torch.nn.functional.mse_loss(self.engine(inputs), targets)

    def train_batch(self, iterator, epoch_idx, batch_idx):
        loss = self._loss(iterator)
        self.engine.backward(loss)
        self.engine.step()
        self.losses.append(loss.item())
        return {"loss": loss}

    def evaluate_batch(self, iterator, batch_idx):
        return {"validation_loss": self._loss(iterator)}


class PipelineTrial(Trial):
    """Gives whole batches to a pipeline of two stages."""

    def __init__(self, context, stage):
        self.context = context
        self.losses, self.evaluated = [], []
        torch.manual_seed(0)
        layers = [torch.nn.Linear(1, 4), torch.nn.Linear(4, 1)]
        model = deepspeed.PipelineModule(layers=layers, loss_fn=torch.nn.functional.mse_loss, num_stages=2)
        config = {
            "train_batch_size": 16,
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 0.0,
        }
        engine = deepspeed.initialize(model=model, config=config, model_parameters=[*model.parameters()])[0]
        self.engine = context.wrap_model_engine(engine)

    def train_batch(self, iterator, epoch_idx, batch_idx):
        loss = self.engine.train_batch(iterator)
        self.losses.append(loss.item())
        return {"loss": loss}

    def evaluate_batch(self, iterator, batch_idx):
        loss = self.engine.eval_batch(iterator)
        self.evaluated.append(loss.item())
        return {"validation_loss": loss}


def main():
    options = json.loads(sys.argv[1])
    stage, kind = options["stage"], PipelineTrial if options.get("pipeline") else Trial
    deepspeed.init_distributed()
    with det_deepspeed.init(distributed=core.DistributedContext.from_deepspeed()) as context:
        trial = kind(context, stage)
        det_deepspeed.Trainer(trial, context).fit(
            max_length=pytorch.Batch(8), checkpoint_period=pytorch.Batch(4), validation_period=pytorch.Batch(4)
        )
    if os.environ["RANK"] == "0":
        found = {"losses": trial.losses, "evaluated": getattr(trial, "evaluated", []), "global_steps": trial.engine.global_steps}
        print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
