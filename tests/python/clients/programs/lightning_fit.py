"""Trains by the DeepSpeedStrategy of Lightning, saves, and goes on from the checkpoint in a new Trainer.

The strategy refuses other devices than CUDA's; OnCpu lifts that, and nothing else.
"""

import json
import sys

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy


class OnCpu(DeepSpeedStrategy):
    def setup_environment(self):
        DDPStrategy.setup_environment(self)

    def setup_distributed(self):
        """Does what the strategy does, without its look at the indices of devices, which a CPU lacks."""
        self.set_world_ranks()
        self._init_deepspeed_distributed()


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        self.losses = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def fit(options, epochs, resume=None):
    """Returns the Trainer and the losses of this rank."""
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": options["stage"]},
    }
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=OnCpu(process_group_backend="gloo", config=config),
        max_epochs=epochs,
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=options["folder"],
    )
    generator = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(32, 4, generator=generator), torch.ones(32, 3))
    module = Regression()
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=resume)
    return trainer, module.losses


def main():
    options = json.loads(sys.argv[1])
    path = options["folder"] + "/saved.ckpt"
    whole = fit(options, 4)[1]
    trainer, first = fit(options, 2)
    trainer.save_checkpoint(path)
    resumed = fit(options, 4, path)[1]
    if trainer.global_rank == 0:
        print("RESULT " + json.dumps(dict(whole=whole, resumed=first + resumed)), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
