"""The engine of a PipelineModule: it takes whole batches from an iterator."""
import torch
import torch.distributed as dist

from deepspeed._errors import UsageError
from deepspeed.runtime.dataloader import RepeatingLoader
from deepspeed.runtime.engine import DeepSpeedEngine


class PipelineEngine(DeepSpeedEngine):
    """Trains by train_batch() and evaluates by eval_batch(); forward, backward and step on their own are errors."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._in_batch = False
        self.data_iterator = None
        self.batch_fn = None
        self.agg_train_loss = None
        self.grid = self.module.mpu()
        self.micro_batches = self.gradient_accumulation_steps()
        if self.training_dataloader is not None:
            self.set_dataloader(self.training_dataloader)

    def train_batch(self, data_iter=None):
        """Trains on as many micro batches as the accumulation steps are; returns the mean loss over them and all ranks."""
        if data_iter is not None:
            self.set_dataiterator(data_iter)
        self.train()
        losses = []
        self._in_batch = True
        try:
            for _ in range(self.gradient_accumulation_steps()):
                loss = self._loss_of(self._next_micro_batch())
                losses.append(loss.detach())
                super().backward(loss)
                super().step()
        finally:
            self._in_batch = False
        self.agg_train_loss = self._mean(losses)
        return self.agg_train_loss

    def eval_batch(self, data_iter, return_logits=False, compute_loss=True, reduce_output="avg", bcast_loss=True, num_micro_batches=None):
        """Evaluates the micro batches of a batch; returns the mean loss, or the outputs where compute_loss is off."""
        was_training = self.module.training
        self.eval()
        previous, self.data_iterator = self.data_iterator, data_iter
        outputs, losses = [], []
        self._in_batch = True
        try:
            with torch.no_grad():
                for _ in range(num_micro_batches or self.gradient_accumulation_steps()):
                    inputs, labels = self._next_micro_batch()
                    outputs.append(super().forward(inputs))
                    if compute_loss and self.module.loss_fn is not None:
                        losses.append(self.module.loss_fn(outputs[-1], labels))
        finally:
            self._in_batch = False
            self.data_iterator = previous
            self.train(was_training)
        result = self._mean(losses) if losses else outputs
        return (result, outputs[-1]) if return_logits else result

    def _loss_of(self, batch):
        inputs, labels = batch
        output = super().forward(inputs)
        return self.module.loss_fn(output, labels) if self.module.loss_fn is not None else output

    def _next_micro_batch(self):
        if self.data_iterator is None:
            raise UsageError("train_batch(): there is no data; pass an iterator, or training_data to initialize()")
        batch = next(self.data_iterator)
        if self.batch_fn is not None:
            batch = self.batch_fn(batch)
        return tuple(_to(part, self.device) for part in batch)

    def _mean(self, losses):
        mean = torch.stack([loss.detach().float() for loss in losses]).mean()
        if dist.get_world_size() > 1:
            dist.all_reduce(mean)
            mean /= dist.get_world_size()
        return mean

    def set_dataloader(self, loader):
        """Begins to read from a loader, over and over."""
        self.training_dataloader = loader
        self.data_iterator = iter(RepeatingLoader(loader))

    def set_dataiterator(self, iterator):
        self.data_iterator = iterator

    def set_batch_fn(self, fn):
        """Changes each micro batch by the function before its use."""
        self.batch_fn = fn

    def is_first_stage(self):
        return True

    def is_last_stage(self):
        return True

    def is_pipe_parallel(self):
        return False

    def get_additional_losses(self):
        return self.module.get_additional_losses()

    def reset_activation_shape(self):
        """Has nothing to do: one stage sends no activations."""

    def forward(self, *args, **kwargs):
        return self._only_inside("forward", super().forward, *args, **kwargs)

    def backward(self, *args, **kwargs):
        return self._only_inside("backward", super().backward, *args, **kwargs)

    def step(self, *args, **kwargs):
        return self._only_inside("step", super().step, *args, **kwargs)

    def _only_inside(self, name, function, *args, **kwargs):
        if not self._in_batch:
            from deepspeed.runtime.pipe.module import PipelineError

            raise PipelineError(f"{name}() of a pipeline's engine: only train_batch() and eval_batch() can be called")
        return function(*args, **kwargs)


def _to(part, device):
    if isinstance(part, torch.Tensor):
        return part.to(device)
    return tuple(_to(item, device) for item in part) if isinstance(part, (list, tuple)) else part
