from deepspeed.ops.lamb.fused_lamb import FusedLamb
