"""The description of a model as a pipeline of layers."""
from deepspeed._errors import NotSupportedError


class LayerSpec:
    """Names a class of layers and its arguments, to be built where the layer is to live."""

    def __init__(self, typename, *module_args, **module_kwargs):
        self.typename = typename
        self.module_args = module_args
        self.module_kwargs = module_kwargs
        if not isinstance(typename, type):
            raise RuntimeError("LayerSpec only supports classes that make torch.nn.Modules")

    def build(self, log=False):
        return self.typename(*self.module_args, **self.module_kwargs)

    def __repr__(self):
        arguments = [repr(value) for value in self.module_args] + [f"{key}={value!r}" for key, value in self.module_kwargs.items()]
        return f"{self.typename.__name__}({', '.join(arguments)})"


class TiedLayerSpec(LayerSpec):
    """Is a LayerSpec whose weights all layers of the same key share."""

    def __init__(self, key, typename, *module_args, forward_fn=None, tied_weight_attr=["weight"], **module_kwargs):
        super().__init__(typename, *module_args, **module_kwargs)
        self.key = key
        self.forward_fn = forward_fn
        self.tied_weight_attr = [tied_weight_attr] if isinstance(tied_weight_attr, str) else tied_weight_attr


class PipelineModule:
    """Is a model as a pipeline, which does not exist yet."""

    def __init__(self, *args, **kwargs):
        raise NotSupportedError("PipelineModule is not supported yet: train the layers as a torch.nn.Sequential with ZeRO")
