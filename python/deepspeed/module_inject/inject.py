from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed._errors import NotSupportedError, UsageError
from deepspeed.ops.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from typing import Any

    import torch
    from torch import nn

_TANH_FORMS = ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast")


def bert_weights(layer: nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns (initial_weights, initial_biases) for DeepSpeedTransformerLayer from a BertLayer.

    The layer is of Transformers, or has parts with the same names.
    """
    attention: Any = layer.attention
    own: Any = layer
    parts = (
        *(attention.self.query, attention.self.key, attention.self.value, attention.output.dense, attention.output.LayerNorm),
        *(own.intermediate.dense, own.output.dense, own.output.LayerNorm),
    )
    return [part.weight for part in parts], [part.bias for part in parts]


def module_inject(
    layer_obj: type[nn.Module],
    model: nn.Module,
    config: Any,
    micro_batch_size: int = -1,
    max_seq_length: int = -1,
    seed: int = -1,
    preln: bool = False,
    fp16: bool = False,
) -> nn.Module:
    """Replaces all modules of class `layer_obj` by DeepSpeedTransformerLayers with their weights.

    Returns the model. Call it before initialize(). config: the model's, such as Transformers' BertConfig. micro_batch_size: the most
    sequences of a forward; -1 for any number. max_seq_length: has no effect; sequences may have any length. preln: whether the layers
    normalize their inputs. fp16: refuses other dtypes than float16. Raises UsageError if there is no such module, and NotSupportedError
    for another activation than GELU. A GELU with erf is replaced by its tanh form, with a warning.
    """
    activation = str(getattr(config, "hidden_act", "gelu_new"))
    if activation == "gelu":
        logger.warning("module_inject: hidden_act 'gelu' becomes its tanh form, which differs from it by up to 5e-4")
    elif activation not in _TANH_FORMS:
        raise NotSupportedError(f"module_inject: hidden_act {activation!r} is not supported, expected 'gelu_new' or 'gelu'")
    names = [name for name, module in model.named_modules() if isinstance(module, layer_obj)]
    if not names:
        raise UsageError(f"module_inject: the model has no module of the class {layer_obj.__name__}")
    for name in names:
        layer = model.get_submodule(name)
        parent_name, _, own_name = name.rpartition(".")
        made = DeepSpeedTransformerLayer(_config_of(config, micro_batch_size, seed, preln, fp16), *bert_weights(layer))
        made.train(layer.training)
        setattr(model.get_submodule(parent_name), own_name, made)
    return model


def _config_of(config: Any, batch_size: int, seed: int, preln: bool, fp16: bool) -> DeepSpeedTransformerConfig:
    return DeepSpeedTransformerConfig(
        batch_size=batch_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        heads=config.num_attention_heads,
        attn_dropout_ratio=config.attention_probs_dropout_prob,
        hidden_dropout_ratio=config.hidden_dropout_prob,
        num_hidden_layers=config.num_hidden_layers,
        initializer_range=config.initializer_range,
        layer_norm_eps=getattr(config, "layer_norm_eps", 1e-12),
        seed=seed,
        pre_layer_norm=preln,
        fp16=fp16,
    )
