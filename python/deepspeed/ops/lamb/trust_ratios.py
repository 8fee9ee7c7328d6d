"""What clients read of LAMB's last step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepspeed.runtime.engine import DeepSpeedEngine


class TrustRatios:
    """Adds the trust ratios to optimizers of LAMB's kind."""

    _engine: Callable[[], DeepSpeedEngine | None] | None = None  # a weak reference, where one steps the parameters

    def get_lamb_coeffs(self) -> list[float]:
        """Returns the trust ratio of each parameter's last step, clamped to [min_coeff, max_coeff]: floats, in the order of the
        groups. Beside other ranks, those of the parameters that this one has a part of. Empty before the first step."""
        engine = self._engine() if self._engine is not None else None
        if engine is not None:
            return engine._core.lamb_coeffs()
        stepper = getattr(self, "_stepper", None)
        return stepper.lamb_coeffs() if stepper is not None else []
