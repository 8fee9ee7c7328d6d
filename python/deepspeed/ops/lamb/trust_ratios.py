"""Shows clients the trust ratios of LAMB's last step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepspeed._core import TrainingEngine


class TrustRatios:
    """Adds trust ratios to optimizers of LAMB's kind."""

    _find_core: Callable[[], TrainingEngine | None] | None = None  # set while an engine steps the parameters

    def get_lamb_coeffs(self) -> list[float]:
        """Returns each parameter's trust ratio in the last step, clamped to [min_coeff, max_coeff].

        Floats in the order of the groups. With several ranks they are those of the parameters that this rank owns a part of. Empty before
        the first step.
        """
        core = self._find_core() if self._find_core is not None else None
        if core is not None:
            return core.lamb_coeffs()
        stepper = getattr(self, "_stepper", None)
        return stepper.lamb_coeffs() if stepper is not None else []
