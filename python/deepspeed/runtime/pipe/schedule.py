"""Orders of instructions of a pipeline's stage.

A micro batch m is on its way forward at the step `stage + 2 m` of a training schedule, and on its way back at the step
`2 stages - 1 - stage + 2 m`: a stage alternates between both, and sends in the step after the computation.
"""
import abc

from deepspeed.runtime.utils import call_to_str


class PipeInstruction:
    """Is one thing to do; its arguments are attributes."""

    def __init__(self, **kwargs):
        self.name = type(self).__name__
        self.kwargs = kwargs
        self.__dict__.update(kwargs)

    def __repr__(self):
        return call_to_str(self.name, **self.kwargs)


class OptimizerStep(PipeInstruction):
    """Updates the parameters."""


class ReduceGrads(PipeInstruction):
    """Reduces gradients over data parallel ranks."""


class ReduceTiedGrads(PipeInstruction):
    """Reduces gradients of tied modules over their stages."""


class BufferOpInstruction(PipeInstruction):
    """Works on one of the stage's buffers."""

    def __init__(self, buffer_id, **kwargs):
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
    """Receives inputs from the stage before."""


class SendGrad(BufferOpInstruction):
    """Sends gradients of inputs to the stage before."""


class RecvGrad(BufferOpInstruction):
    """Receives gradients of outputs from the next stage."""


class PipeSchedule(abc.ABC):
    """Gives lists of instructions, one a step."""

    def __init__(self, micro_batches, stages, stage_id):
        self.micro_batches = micro_batches
        self.stages = stages
        self.stage_id = stage_id
        self.prev_stage = stage_id - 1
        self.next_stage = stage_id + 1
        self.it = None

    @abc.abstractmethod
    def steps(self):
        """Generates the lists."""

    def num_pipe_buffers(self):
        return self.micro_batches

    stage = property(lambda self: self.stage_id)
    num_stages = property(lambda self: self.stages)
    num_micro_batches = property(lambda self: self.micro_batches)
    is_first_stage = property(lambda self: self.stage_id == 0)
    is_last_stage = property(lambda self: self.stage_id == self.stages - 1)

    def _valid_micro_batch(self, micro_batch_id):
        return 0 <= micro_batch_id < self.micro_batches

    def _valid_stage(self, stage_id):
        return 0 <= stage_id < self.stages

    def _buffer_idx(self, micro_batch_id):
        assert self._valid_micro_batch(micro_batch_id)
        return micro_batch_id % self.num_pipe_buffers()

    def __iter__(self):
        self.it = None
        return self

    def __next__(self):
        if self.it is None:
            self.it = self.steps()
        return next(self.it)


class InferenceSchedule(PipeSchedule):
    """Passes micro batches forward alone, with two buffers that take turns."""

    def steps(self):
        for step in range(self.micro_batches + self.stages - 1):
            now, before = step - self.stage_id, step - self.stage_id - 1
            own, other = self._buffers(step)
            here = self._valid_micro_batch(now)
            commands = []
            if here and (self.is_first_stage or self.is_last_stage):
                commands.append(LoadMicroBatch(own))
            sends = [SendActivation(other)] if self._valid_micro_batch(before) and not self.is_last_stage else []
            receives = [RecvActivation(own)] if here and not self.is_first_stage else []
            commands += sends + receives if self.stage_id % 2 == 0 else receives + sends
            if here:
                commands.append(ForwardPass(own))
            yield commands

    def _buffers(self, step):
        own = (step + self.stage_id % 2) % 2
        return own, 1 - own

    def num_pipe_buffers(self):
        return 2


class TrainSchedule(PipeSchedule):
    """Alternates between one forward and one backward; the last step reduces and updates."""

    def steps(self):
        last = 2 * (self.micro_batches + self.stages - 1) - 1
        for step in range(last + 1):
            commands = self._exchange(step)
            micro_batch, is_forward = self._at(step)
            if self._valid_micro_batch(micro_batch):
                buffer = self._buffer_idx(micro_batch)
                if is_forward and (self.is_first_stage or self.is_last_stage):
                    commands.append(LoadMicroBatch(buffer))
                commands.append(ForwardPass(buffer) if is_forward else BackwardPass(buffer))
            if step == last:
                commands += [ReduceTiedGrads(), ReduceGrads(), OptimizerStep()]
            yield commands

    def _at(self, step):
        """Returns (micro batch, is it on its way forward); the micro batch may lie outside of the range."""
        if step % 2 == self.stage_id % 2:
            return (step - self.stage_id) // 2, True
        return (step - 2 * self.stages + 1 + self.stage_id) // 2, False

    def _exchange(self, step):
        now, is_forward = self._at(step)
        before = self._at(step - 1)[0] if step > 0 else -1
        arrives, leaves = self._valid_micro_batch(now), self._valid_micro_batch(before)
        commands = []
        if is_forward and not self.is_first_stage:
            if leaves:
                commands.append(SendGrad(self._buffer_idx(before)))
            if arrives:
                commands.append(RecvActivation(self._buffer_idx(now)))
        if not is_forward and not self.is_last_stage:
            if arrives:
                commands.append(RecvGrad(self._buffer_idx(now)))
            if leaves:
                commands.append(SendActivation(self._buffer_idx(before)))
        return commands

    def num_pipe_buffers(self):
        return max(2, min(self.stages - self.stage_id, self.micro_batches))


class DataParallelSchedule(PipeSchedule):
    """Accumulates micro batches on one stage."""

    def steps(self):
        for micro_batch in range(self.micro_batches):
            commands = [LoadMicroBatch(buffer_id=0), ForwardPass(buffer_id=0), BackwardPass(buffer_id=0)]
            if micro_batch == self.micro_batches - 1:
                commands += [ReduceGrads(), OptimizerStep()]
            yield commands

    def num_pipe_buffers(self):
        return 1
