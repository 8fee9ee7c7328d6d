from deepspeed.ops.adagrad.cpu_adagrad import DeepSpeedCPUAdagrad
