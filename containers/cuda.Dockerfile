# A container in which README.md's commands run, on NVIDIA's GPUs; torch's CUDA version is 13.0:
#   docker build -f containers/cuda.Dockerfile -t deepspeed-cpp:cuda .
#   docker run --rm -it --gpus all --shm-size 2g deepspeed-cpp:cuda ./demo.sh --quick
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04
ENV DEBIAN_FRONTEND=noninteractive CUDA_HOME=/usr/local/cuda
WORKDIR /opt/deepspeed-cpp
# There is no GPU while the image is made, so --cuda asks for what torch loads on one.
COPY scripts/setup.sh scripts/check_machine.sh scripts/
RUN scripts/setup.sh --cuda && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/build.sh release app_deepspeed app_ds_node app_zero_to_fp32 example_gpt2
CMD ["./demo.sh", "--quick"]
