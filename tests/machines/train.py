"""Trains a small net on each rank: train.py FOLDER. Each rank writes its losses into FOLDER."""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python" / "programs"))
import small_net

engine = small_net.make_engine(stage=2)
losses = small_net.train(engine, steps=4)
(pathlib.Path(sys.argv[1]) / f"losses.{os.environ['RANK']}").write_text(json.dumps(losses))
