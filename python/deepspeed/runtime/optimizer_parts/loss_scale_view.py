"""What scripts read off `optimizer.loss_scaler` and `optimizer.loss_scale_config`; the core scales."""


class LossScaleView:
    """Shows the engine's loss scale as it is now, and the config's keys of fp16."""

    scale_factor = 2.0

    def __init__(self, engine):
        self._engine = engine

    def _fp16(self, key):
        return self._engine._key("fp16", key)

    @property
    def cur_scale(self):
        return self._engine.loss_scale()

    loss_scale = cur_scale

    @property
    def cur_iter(self):
        """Counts the updates, skipped ones included."""
        return self._engine.global_steps

    @property
    def dynamic(self):
        return self._engine.dynamic_loss_scale()

    dynamic_loss_scale = dynamic
    scale_window = property(lambda self: self._fp16("loss_scale_window"))
    delayed_shift = property(lambda self: self._fp16("hysteresis"))
    consecutive_hysteresis = property(lambda self: self._fp16("consecutive_hysteresis"))
    min_scale = property(lambda self: self._fp16("min_loss_scale"))
    min_loss_scale = min_scale
