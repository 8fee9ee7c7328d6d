"""Shows the core's schedules of a pipeline's stage, under DeepSpeed's names."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.runtime.utils import call_to_str

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from typing_extensions import Self


class PipeInstruction:
    """Names one instruction. Its arguments are attributes."""

    def __init__(self, **kwargs: Any) -> None:
        self.name = type(self).__name__
        self.kwargs = kwargs
        self.__dict__.update(kwargs)

    def __repr__(self) -> str:
        return call_to_str(self.name, **self.kwargs)


class OptimizerStep(PipeInstruction):
    """Updates the parameters."""


class ReduceGrads(PipeInstruction):
    """Reduces gradients over the data-parallel ranks."""


class ReduceTiedGrads(PipeInstruction):
    """Reduces gradients of tied modules over their stages."""


class BufferOpInstruction(PipeInstruction):
    """Works on one of the stage's buffers."""

    def __init__(self, buffer_id: int, **kwargs: Any) -> None:
        super().__init__(buffer_id=buffer_id, **kwargs)


class LoadMicroBatch(BufferOpInstruction):
    """Loads inputs on the first stage, and labels on the last one."""


class ForwardPass(BufferOpInstruction):
    """Computes outputs."""


class BackwardPass(BufferOpInstruction):
    """Computes gradients."""


class SendActivation(BufferOpInstruction):
    """Sends outputs to the next stage."""


class RecvActivation(BufferOpInstruction):
    """Receives inputs from the previous stage."""


class SendGrad(BufferOpInstruction):
    """Sends gradients of the inputs to the previous stage."""


class RecvGrad(BufferOpInstruction):
    """Receives gradients of the outputs from the next stage."""


class PipeSchedule(abc.ABC):
    """Yields lists of instructions, one for each step."""

    def __init__(self, micro_batches: int, stages: int, stage_id: int) -> None:
        self.micro_batches = micro_batches
        self.stages = stages
        self.stage_id = stage_id
        self.prev_stage = stage_id - 1
        self.next_stage = stage_id + 1
        self.it: Iterator[list[PipeInstruction]] | None = None

    @abc.abstractmethod
    def steps(self) -> Iterator[list[PipeInstruction]]:
        """Yields the lists."""

    def num_pipe_buffers(self) -> int:
        return self.micro_batches

    @property
    def stage(self) -> int:
        return self.stage_id

    @property
    def num_stages(self) -> int:
        return self.stages

    @property
    def num_micro_batches(self) -> int:
        return self.micro_batches

    @property
    def is_first_stage(self) -> bool:
        return self.stage_id == 0

    @property
    def is_last_stage(self) -> bool:
        return self.stage_id == self.stages - 1

    def _valid_micro_batch(self, micro_batch_id: int) -> bool:
        return 0 <= micro_batch_id < self.micro_batches

    def _valid_stage(self, stage_id: int) -> bool:
        return 0 <= stage_id < self.stages

    def _buffer_idx(self, micro_batch_id: int) -> int:
        assert self._valid_micro_batch(micro_batch_id)
        return micro_batch_id % self.num_pipe_buffers()

    def __iter__(self) -> Self:
        self.it = None
        return self

    def __next__(self) -> list[PipeInstruction]:
        if self.it is None:
            self.it = self.steps()
        return next(self.it)


class _CoreSchedule(PipeSchedule):
    """Yields the core's schedule with its class's name."""

    _core_name: str

    def steps(self) -> Iterator[list[PipeInstruction]]:
        for step in _core.schedule_steps(*self._arguments()):
            yield [_INSTRUCTIONS[name](buffer) if buffer >= 0 else _INSTRUCTIONS[name]() for name, buffer in step]

    def num_pipe_buffers(self) -> int:
        return _core.schedule_buffers(*self._arguments())

    def _arguments(self) -> tuple[str, int, int, int]:
        return self._core_name, self.micro_batches, self.stages, self.stage_id


class InferenceSchedule(_CoreSchedule):
    """Only runs forwards, with two alternating buffers."""

    _core_name = "InferenceSchedule"


class TrainSchedule(_CoreSchedule):
    """Alternates between one forward and one backward. The last step reduces and updates."""

    _core_name = "TrainSchedule"


class DataParallelSchedule(_CoreSchedule):
    """Accumulates micro batches on one stage."""

    _core_name = "DataParallelSchedule"


_INSTRUCTIONS: dict[str, Callable[..., PipeInstruction]] = {
    kind.__name__: kind
    for kind in (
        OptimizerStep,
        ReduceGrads,
        ReduceTiedGrads,
        LoadMicroBatch,
        ForwardPass,
        BackwardPass,
        SendActivation,
        RecvActivation,
        SendGrad,
        RecvGrad,
    )
}
