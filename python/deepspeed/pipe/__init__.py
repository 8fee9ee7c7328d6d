"""Pipelines: names that scripts import. The classes raise NotSupportedError when they are made."""
from deepspeed.runtime.pipe.module import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import ProcessTopology
