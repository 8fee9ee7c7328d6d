"""Writes partitions.txt: how DeepSpeed's own partition_balanced cuts lists of weights (DeepSpeed 0.19.6).

python tests/golden/write_partitions.py > tests/golden/partitions.txt

A line is: the number of parts, the weights between commas, the boundaries between commas.
"""

import random

from deepspeed.runtime.utils import partition_balanced


def show(parts, weights, boundaries):
    print(parts, ",".join(map(str, weights)), ",".join(map(str, boundaries)))


EMBEDDINGS = [38597376, 0, *[7087872] * 12, 1536, 0]
for parts in range(1, 9):
    show(parts, [1] * 12, partition_balanced([1] * 12, parts))
    show(parts, [0] * 10, partition_balanced([0] * 10, parts))
    show(parts, [0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0], partition_balanced([0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0], parts))
    show(parts, EMBEDDINGS, partition_balanced(EMBEDDINGS, parts))

generator = random.Random(7)
for _ in range(120):
    count = generator.randint(1, 24)
    most = generator.choice([1, 3, 10, 10**6])
    weights = [generator.randint(0, most) for _ in range(count)]
    parts = generator.randint(1, 9)
    show(parts, weights, partition_balanced(weights, parts))
