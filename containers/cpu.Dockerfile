# A container in which README.md's commands run, on the CPU:
#   docker build -f containers/cpu.Dockerfile -t deepspeed-cpp .
#   docker run --rm -it --shm-size 2g deepspeed-cpp ./demo.sh --quick
FROM debian:12
ENV DEBIAN_FRONTEND=noninteractive
WORKDIR /opt/deepspeed-cpp
# Packages and torch first: a changed source does not fetch them again.
COPY scripts/setup.sh scripts/check_machine.sh scripts/
RUN scripts/setup.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/build.sh release app_deepspeed app_ds_node app_zero_to_fp32 example_gpt2
CMD ["./demo.sh", "--quick"]
