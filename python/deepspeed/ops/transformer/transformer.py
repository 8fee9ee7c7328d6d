"""Defines DeepSpeed's transformer layer and its config. The core computes forward and backward."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING

import torch
from torch import nn

from deepspeed import _core
from deepspeed._errors import NotSupportedError
from deepspeed.accelerator import get_accelerator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_NAMES = tuple(name for name, _ in _core.TransformerConfig.from_dict({}).sizes())


class TransformerConfig:
    """Holds the sizes of a transformer layer. -1 means "not given"."""

    def __init__(
        self,
        batch_size: int = -1,
        hidden_size: int = -1,
        intermediate_size: int = -1,
        heads: int = -1,
        attn_dropout_ratio: float = -1,
        hidden_dropout_ratio: float = -1,
        num_hidden_layers: int = -1,
        initializer_range: float = -1,
    ) -> None:
        self.layer_id = -1
        self.batch_size = batch_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.heads = heads
        self.attn_dropout_ratio = attn_dropout_ratio
        self.hidden_dropout_ratio = hidden_dropout_ratio
        self.num_hidden_layers = num_hidden_layers
        self.initializer_range = initializer_range


class DeepSpeedTransformerConfig(TransformerConfig):
    """Configures a DeepSpeedTransformerLayer.

    batch_size: the most sequences that a forward takes; -1 allows any number.
    hidden_size, heads: H, a multiple of the number of heads. intermediate_size: I; -1 means 4 H.
    attn_dropout_ratio, hidden_dropout_ratio: dropout of the attention's probabilities, and of both outputs that are added to a
        residual; 0 to 1, or -1 for none.
    num_hidden_layers, initializer_range: new matrices are drawn from N(0, initializer_range). With adjust_init_range the deviation
        of those whose results are added to a residual is initializer_range / sqrt(2 num_hidden_layers).
    local_rank: the CUDA device that becomes the current one; -1 changes nothing.
    seed: the seed of dropout masks. Their offsets come from torch's generator, and with -1 the seed does, too.
    fp16: forward refuses any dtype but float16.
    pre_layer_norm: normalizes the inputs of the two blocks, otherwise their sums.
    normalize_invertible, gelu_checkpoint, attn_dropout_checkpoint: backward computes what they name again instead of keeping it.
    stochastic_mode: permits results that differ from run to run, but they do not differ.
    return_tuple, huggingface: forward returns a tuple with one element. training: False turns dropout off, as eval() does.
    """

    def __init__(
        self,
        batch_size: int = -1,
        hidden_size: int = -1,
        intermediate_size: int = -1,
        heads: int = -1,
        attn_dropout_ratio: float = -1,
        hidden_dropout_ratio: float = -1,
        num_hidden_layers: int = -1,
        initializer_range: float = -1,
        layer_norm_eps: float = 1e-12,
        local_rank: int = -1,
        seed: int = -1,
        fp16: bool = False,
        pre_layer_norm: bool = True,
        normalize_invertible: bool = False,
        gelu_checkpoint: bool = False,
        adjust_init_range: bool = True,
        attn_dropout_checkpoint: bool = False,
        stochastic_mode: bool = False,
        return_tuple: bool = False,
        training: bool = True,
        huggingface: bool = False,
    ) -> None:
        super().__init__(
            batch_size,
            hidden_size,
            intermediate_size if intermediate_size > 0 else 4 * hidden_size,
            heads,
            attn_dropout_ratio,
            hidden_dropout_ratio,
            num_hidden_layers,
            initializer_range,
        )
        self.layer_norm_eps = layer_norm_eps
        self.local_rank = local_rank
        self.seed = seed
        self.fp16 = fp16
        self.pre_layer_norm = pre_layer_norm
        self.normalize_invertible = normalize_invertible
        self.gelu_checkpoint = gelu_checkpoint
        self.adjust_init_range = adjust_init_range
        self.attn_dropout_checkpoint = attn_dropout_checkpoint
        self.stochastic_mode = stochastic_mode
        self.return_tuple = return_tuple or huggingface
        self.huggingface = huggingface
        self.training = training
        self.test_gemm = False
        self.is_grad_enabled = True

    @classmethod
    def from_dict(cls, json_object: Mapping[str, Any]) -> DeepSpeedTransformerConfig:
        """Reads {key: value}. Raises ConfigError for an unknown key, and for a value of a wrong type or range."""
        return cls._of(_core.TransformerConfig.from_dict(dict(json_object)))

    @classmethod
    def from_json_file(cls, json_file: str | os.PathLike[str]) -> DeepSpeedTransformerConfig:
        """Reads a file in UTF-8, or in UTF-16 as DeepSpeed expects it. Raises IoError too."""
        return cls._of(_core.TransformerConfig.from_json_file(os.fspath(json_file)))

    @classmethod
    def _of(cls, core: _core.TransformerConfig) -> DeepSpeedTransformerConfig:
        config = cls()
        config.__dict__.update(core.to_dict())
        return config


class DeepSpeedTransformerLayer(nn.Module):
    """Computes an encoder's transformer layer from DeepSpeed's parameters.

    With H hidden_size and I intermediate_size they are attn_qkvw [3H, H], attn_qkvb [3H], attn_ow [H, H], attn_ob, attn_nw, attn_nb
    [H], inter_w [I, H], inter_b [I], output_w [H, I], output_b, norm_w, norm_b [H].

    initial_weights, initial_biases: eight each of another implementation: queries, keys, values, attention output, the norm after
    the attention, intermediate, output, last norm. They are copied. Matrices are [out, in]. A bias that is None means 0.

    Raises ConfigError for a value out of range, and UsageError for a wrong number or shape of weights.
    """

    layer_id = 0  # the next layer's
    attn_qkvw: nn.Parameter
    attn_qkvb: nn.Parameter
    _checked: tuple[dict[str, Any], _core.TransformerConfig] | None = None

    def __init__(
        self,
        config: DeepSpeedTransformerConfig,
        initial_weights: Sequence[torch.Tensor] | None = None,
        initial_biases: Sequence[torch.Tensor | None] | None = None,
    ) -> None:
        super().__init__()
        self.config = copy.copy(config)
        self.config.__dict__.update(_core.TransformerConfig.from_dict(_keys_of(config)).checked().to_dict())
        self.config.layer_id = DeepSpeedTransformerLayer.layer_id
        DeepSpeedTransformerLayer.layer_id += 1
        if self.config.local_rank >= 0 and get_accelerator().is_available() and get_accelerator().device_name() != "cpu":
            get_accelerator().set_device(self.config.local_rank)
        if initial_weights is None and initial_biases is None:
            for name, sizes in self._core_config().sizes():
                setattr(self, name, nn.Parameter(torch.empty(sizes)))
            self.init_transformer_weights(self.config.adjust_init_range)
        else:
            joined = self._core_config().join(list(initial_weights or ()), list(initial_biases or ()))
            for name, value in zip(_NAMES, joined, strict=True):
                setattr(self, name, nn.Parameter(value))

    def init_transformer_weights(self, adjust_init_range: bool = False) -> None:
        """Draws all weights again. Raises ConfigError if initializer_range or num_hidden_layers is missing."""
        self._core_config().draw(self._weights(), adjust_init_range)

    def _weights(self) -> list[torch.Tensor]:
        return [getattr(self, name) for name in _NAMES]

    def _core_config(self) -> _core.TransformerConfig:
        """Returns the config as the core has checked it. Checks it again only if a key has changed."""
        keys = {**_keys_of(self.config), "is_grad_enabled": True}  # torch.is_grad_enabled() decides
        if self._checked is None or self._checked[0] != keys:
            self._checked = keys, _core.TransformerConfig.from_dict(keys).checked()
        return self._checked[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": None}

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        head_mask: None = None,
        layer_head_mask: None = None,
        encoder_hidden_states: None = None,
        encoder_attention_mask: None = None,
        past_key_value: None = None,
        output_attentions: bool = False,
        grads: list[list[Any]] | None = None,
        **others: Any,
    ) -> torch.Tensor | tuple[torch.Tensor]:
        """Returns a tensor like hidden_states, in a tuple if the config says return_tuple.

        hidden_states: [batch, sequence, H] in the dtype of the matrices: float32, bfloat16, float16 or float64.
        attention_mask: [batch or 1, heads or 1, sequence or 1, sequence]. Numbers, such as 0 and -10000, are added to the scores.
            Booleans are True for a token that is seen.
        grads: a list to which backward appends [gradient, name] for each weight, in the names of DeepSpeed's tests.
        The other arguments exist for callers that pass None. Raises NotSupportedError for other values, and UsageError for a wrong
        shape, dtype or device, and for more sequences than batch_size.
        """
        others.update(
            head_mask=head_mask,
            layer_head_mask=layer_head_mask,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_value=past_key_value,
            output_attentions=output_attentions,
        )
        given = [name for name, value in others.items() if value is not None and value is not False]
        if given:
            raise NotSupportedError(
                f"DeepSpeedTransformerLayer: {given[0]} is not supported: the layer is an encoder's; use the model's own layer"
            )
        self.config.is_grad_enabled = torch.is_grad_enabled()
        if grads is not None:
            _collect(grads, self)
        output = self._core_config().forward(hidden_states, attention_mask, self._weights(), self.training)
        return (output,) if self.config.return_tuple else output


def _keys_of(config: DeepSpeedTransformerConfig) -> dict[str, Any]:
    return {key: value for key, value in vars(config).items() if not key.startswith("_")}


def _collect(grads: list[list[Any]], layer: DeepSpeedTransformerLayer) -> None:
    """Appends each gradient when backward computes it. Queries, keys and values are separate entries."""
    parts = dict(zip(_NAMES[2:], ("O_W", "O_B", "N2_W", "N2_B", "int_W", "int_B", "out_W", "out_B", "norm_W", "norm_B")))
    hidden = layer.config.hidden_size

    def append(name: str, weight: torch.Tensor) -> None:
        weight.register_hook(lambda gradient: grads.append([gradient, name]))

    def append_rows(kind: str, weight: torch.Tensor) -> None:
        def take(gradient: torch.Tensor) -> None:
            for i, part in ((2, "V"), (1, "K"), (0, "Q")):
                grads.append([gradient.narrow(0, i * hidden, hidden), f"{part}_{kind}"])

        weight.register_hook(take)

    append_rows("W", layer.attn_qkvw)
    append_rows("B", layer.attn_qkvb)
    for name, short in parts.items():
        append(short, getattr(layer, name))
