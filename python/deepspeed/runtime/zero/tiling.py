"""A linear layer in tiles, one after another: stage 3 then gathers a tile at a time, never the whole weight."""
import torch

from deepspeed.runtime.partitions import partition_uniform
from deepspeed.runtime.zero.partition_parameters import GatheredParameters


class TiledLinear(torch.nn.Module):
    """Computes torch.nn.Linear(in_features, out_features) by out_splits x in_splits tiles of `linear_cls`.

    `linears[row][column]` are the tiles; the last of a row has the row's bias. input_is_already_split: forward gets a list
    of the input's parts. combine_out_splits=False: it returns the rows' outputs as a list. init_linear: a layer whose
    weights are copied.
    """

    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        in_splits=1,
        out_splits=1,
        input_is_already_split=False,
        combine_out_splits=True,
        linear_cls=torch.nn.Linear,
        init_linear=None,
        **kwargs,
    ):
        super().__init__()
        for name, splits, size in (("in_splits", in_splits, in_features), ("out_splits", out_splits, out_features)):
            if not 1 <= splits <= size:
                raise RuntimeError(f"TiledLinear: {name} is {splits}, expected 1 to {size}")
        self.in_features, self.out_features, self.use_bias = in_features, out_features, bias
        self.in_splits, self.out_splits = in_splits, out_splits
        self.input_is_already_split, self.combine_out_splits = input_is_already_split, combine_out_splits
        self.in_parts, self.out_parts = partition_uniform(in_features, in_splits), partition_uniform(out_features, out_splits)
        self.linears = torch.nn.ModuleList(
            torch.nn.ModuleList(
                linear_cls(columns, rows, bias=bias and index == in_splits - 1, **kwargs)
                for index, columns in enumerate(_sizes(self.in_parts))
            )
            for rows in _sizes(self.out_parts)
        )
        if init_linear is not None:
            self.copy_params_from(init_linear)

    def forward(self, input_):
        inputs = input_
        if not self.input_is_already_split:
            inputs = torch.split(input_, _sizes(self.in_parts), dim=-1)
        if len(inputs) != self.in_splits:
            raise ValueError(f"TiledLinear: got {len(inputs)} parts of the input, expected {self.in_splits}")
        outputs = []
        for row in self.linears:
            output = None
            for tile, part in zip(row, inputs):
                output = self._add(output, tile(part))
            outputs.append(output)
        return self._combine(outputs) if self.combine_out_splits else outputs

    def _add(self, output, new):
        return new if output is None else output + new

    def _combine(self, outputs):
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)

    @torch.no_grad()
    def copy_params_from(self, other):
        """Copies the weight and the bias of a layer of the same size. At stage 3 collective; rank 0's values are taken."""
        if tuple(other.weight.shape) != (self.out_features, self.in_features) or (other.bias is not None) != self.use_bias:
            raise ValueError(f"copy_params_from(): got {other}, expected {self.in_features} -> {self.out_features}, bias={self.use_bias}")
        for row, tiles in enumerate(self.linears):
            rows = slice(self.out_parts[row], self.out_parts[row + 1])
            for column, tile in enumerate(tiles):
                columns = slice(self.in_parts[column], self.in_parts[column + 1])
                with GatheredParameters(list(tile.parameters()), modifier_rank=0):
                    tile.weight.copy_(other.weight[rows, columns])
                    if tile.bias is not None:
                        tile.bias.copy_(other.bias[rows])


class TiledLinearReturnBias(TiledLinear):
    """Is TiledLinear of layers that return (output, bias) and leave the addition to their caller."""

    def _add(self, output, new):
        if output is None:
            return new
        return output[0] + new[0], new[1] if new[1] is not None else output[1]

    def _combine(self, outputs):
        biases = [bias for _, bias in outputs if bias is not None]
        return super()._combine([output for output, _ in outputs]), super()._combine(biases) if biases else None


def _sizes(parts):
    return [end - begin for begin, end in zip(parts, parts[1:])]
