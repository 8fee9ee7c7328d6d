"""A model as a list of layers. One stage runs as a sequence of modules; more stages do not exist."""
import torch
from torch import nn

from deepspeed._errors import DeepSpeedError, NotSupportedError
from deepspeed.runtime.utils import call_to_str


class PipelineError(DeepSpeedError):
    """A pipeline was used in a wrong way."""


class LayerSpec:
    """Holds a layer's class and arguments, so that build() makes it where it is needed."""

    def __init__(self, typename, *module_args, **module_kwargs):
        if not issubclass(typename, nn.Module):
            raise RuntimeError("LayerSpec only supports torch.nn.Module types.")
        self.typename = typename
        self.module_args = module_args
        self.module_kwargs = module_kwargs

    def __repr__(self):
        return call_to_str(self.typename.__name__, *self.module_args, **self.module_kwargs)

    def build(self, log=False):
        """Makes the layer."""
        return self.typename(*self.module_args, **self.module_kwargs)


class TiedLayerSpec(LayerSpec):
    """Is a layer that shares its module with all layers of the key; forward_fn(module, input) is its forward there."""

    def __init__(self, key, typename, *module_args, forward_fn=None, tied_weight_attr=["weight"], **module_kwargs):
        super().__init__(typename, *module_args, **module_kwargs)
        self.key = key
        self.forward_fn = forward_fn
        self.tied_weight_attr = [tied_weight_attr] if isinstance(tied_weight_attr, str) else tied_weight_attr


class PipelineModule(nn.Module):
    """Runs layers one after the other, each with the output of the one before.

    layers: modules, LayerSpecs and functions. activation_checkpoint_interval: so many layers at a time keep their inputs
    alone for backward; 0 switches that off. Raises NotSupportedError for more than one stage.
    """

    def __init__(
        self,
        layers,
        num_stages=None,
        topology=None,
        loss_fn=None,
        seed_layers=False,
        seed_fn=None,
        base_seed=1234,
        partition_method="parameters",
        activation_checkpoint_interval=0,
        activation_checkpoint_func=None,
        checkpointable_layers=None,
        dynamic_shape=False,
    ):
        super().__init__()
        if num_stages is None and topology is None:
            raise RuntimeError("must provide num_stages or topology")
        stages = topology.get_dim("pipe") if topology is not None else num_stages
        slices = topology.get_dim("model") if topology is not None else 1
        if stages != 1 or slices > 1:
            raise NotSupportedError(
                f"PipelineModule(stages={stages}, slices={max(slices, 1)}) is not supported: only num_stages=1 exists; "
                "partition the model by ZeRO stage 3 in place of a pipeline"
            )
        self.num_stages = 1
        self.loss_fn = loss_fn
        self.activation_checkpoint_interval = activation_checkpoint_interval
        self.activation_checkpoint_func = activation_checkpoint_func
        self._topo = topology
        self._grid = None
        self.tied_modules = nn.ModuleDict()
        self.forward_funcs = []
        for index, layer in enumerate(layers):
            if seed_layers:
                (seed_fn or torch.manual_seed)(base_seed + index)
            self.forward_funcs.append(self._build(index, layer))

    def _build(self, index, layer):
        """Returns the function of a layer, whose module it registers."""
        if isinstance(layer, TiedLayerSpec):
            if layer.key not in self.tied_modules:
                self.tied_modules[layer.key] = layer.build()
            module = self.tied_modules[layer.key]
            if layer.forward_fn is None:
                return module
            return lambda *inputs: layer.forward_fn(module, *inputs)
        if isinstance(layer, LayerSpec):
            layer = layer.build()
        if isinstance(layer, nn.Module):
            self.add_module(str(index), layer)
        return layer

    def forward(self, forward_input):
        interval = self.activation_checkpoint_interval
        if interval <= 0 or not torch.is_grad_enabled():
            return _run(self.forward_funcs, forward_input)
        from deepspeed.runtime.activation_checkpointing import checkpointing

        checkpoint = self.activation_checkpoint_func or checkpointing.checkpoint
        for begin in range(0, len(self.forward_funcs), interval):
            functions = self.forward_funcs[begin : begin + interval]
            inputs = forward_input if isinstance(forward_input, tuple) else (forward_input,)
            forward_input = checkpoint(lambda *given: _run(functions, given if len(given) > 1 else given[0]), *inputs)
        return forward_input

    def topology(self):
        return self._topo

    def mpu(self):
        return self._grid

    def num_pipeline_stages(self):
        return self.num_stages

    def set_checkpoint_interval(self, interval):
        assert interval >= 0
        self.activation_checkpoint_interval = interval

    def allreduce_tied_weight_gradients(self):
        """Has nothing to do: tied layers of one stage share their parameters."""

    def get_additional_losses(self):
        return None


def _run(functions, value):
    for function in functions:
        value = function(value)
    return value
