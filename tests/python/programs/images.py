"""Sorts small images into four kinds, as a script for DeepSpeed is usually written: a parser with DeepSpeed's arguments, the
parameters that train, a data set for initialize() and the engine's local rank.

    deepspeed images.py --deepspeed --deepspeed_config ds_config.json --epochs 2
"""

import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.accelerator import get_accelerator

KINDS, SIZE = 4, 12


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--local_rank", type=int, default=-1, help="given by the launcher")
    return deepspeed.add_config_arguments(parser).parse_args()


class Images(torch.utils.data.Dataset):
    """Each image has a bright square in one of four corners, under noise."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randn(count, 3, SIZE, SIZE, generator=generator)
        self.kinds = torch.arange(count) % KINDS
        for image, kind in zip(self.images, self.kinds.tolist()):
            row, column = SIZE // 2 * (kind // 2), SIZE // 2 * (kind % 2)
            image[:, row : row + SIZE // 2, column : column + SIZE // 2] += 1.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.kinds[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 2)
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, KINDS)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def train(engine, loader, epochs):
    device, criterion = get_accelerator().device_name(engine.local_rank), nn.CrossEntropyLoss()
    losses = []
    for _ in range(epochs):
        for images, kinds in loader:
            images, kinds = images.to(device), kinds.to(device)
            loss = criterion(engine(images), kinds)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
    return losses


def accuracy(engine):
    right, data = 0, Images(64, seed=1)
    engine.eval()
    with torch.no_grad():
        for images, kinds in torch.utils.data.DataLoader(data, batch_size=16):
            right += (engine(images).argmax(1) == kinds).sum().item()
    return right / len(data)


def main():
    args = parse()
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = Net()
    parameters = filter(lambda param: param.requires_grad, model.parameters())
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=parameters, training_data=Images(256, seed=0))
    losses = train(engine, loader, args.epochs)
    result = dict(losses=losses, accuracy=accuracy(engine), local_rank=engine.local_rank, argument=args.local_rank, ranks=engine.world_size)
    if torch.distributed.get_rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
