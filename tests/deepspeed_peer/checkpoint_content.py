"""What a checkpoint of stages 0 to 3 holds, by parameter, whoever wrote it; and the form of its files."""

import torch

SCALER_KEYS = ("dynamic_loss_scale", "cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window")
OPTIONS = ("lr", "betas", "eps", "weight_decay", "bias_correction")


def load(path):
    return torch.load(path, weights_only=False)  # DeepSpeed's own classes are inside


def model_files(folder):
    """Of each rank at stage 3, else one."""
    return sorted(folder.glob("zero_pp_rank_*_model_states.pt")) or [folder / "mp_rank_00_model_states.pt"]


def model_file(folder):
    return model_files(folder)[0]


def optimizer_files(folder):
    return sorted(folder.glob("*zero_pp_rank_*_mp_rank_00_optim_states.pt"))


def split(flat, shapes):
    parts = torch.split(flat.detach()[: sum(shape.numel() for shape in shapes.values())], [shape.numel() for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts)}


def join(parts, shapes):
    """Of the flat shards of each rank: whole tensors, without each one's padding."""
    whole, start = {}, 0
    for name, shape in shapes.items():
        size = -(-shape.numel() // len(parts))
        whole[name] = torch.cat([part.detach()[start : start + size] for part in parts])[: shape.numel()].view(shape)
        start += size
    return whole


def read_run(folder, groups):
    """Every weight, state, counter and setting by a path. `groups`: of each group of the optimizer the names."""
    model = load(model_file(folder))
    run = {f"module/{name}": tensor for name, tensor in model["module"].items()}
    for key in ("global_steps", "global_samples", "skipped_steps", "lr_scheduler", "buffer_names"):
        run[key] = model[key]
    if len(model_files(folder)) > 1 or model_file(folder).name.startswith("zero_pp"):
        read_shards(run, folder, model)
        return run
    shapes = [{name: model["module"][name].shape for name in group} for group in groups]
    if model["optimizer"] is None:
        read_partitions(run, folder, model)
    else:
        read_plain(run, model["optimizer"], shapes)
    return run


def note_group(run, index, options, step):
    run[f"step/{index}"] = step
    for key in OPTIONS:
        run[f"{key}/{index}"] = tuple(options[key]) if key == "betas" else options[key]


def read_partitions(run, folder, model):
    states = [load(path)["optimizer_state_dict"] for path in optimizer_files(folder)]
    if "loss_scaler" in states[0]:  # not in those of DeepSpeed's BF16_Optimizer
        run["scaler"], run["overflow"] = vars(states[0]["loss_scaler"]), states[0]["overflow"]
    run["clip_grad"] = states[0]["clip_grad"]
    for index, shapes in enumerate(model["param_shapes"]):
        flat = torch.cat([rank["single_partition_of_fp32_groups"][index] for rank in states])
        run.update({f"fp32/{name}": part for name, part in split(flat, shapes).items()})
        bases = [rank["base_optimizer_state"] for rank in states]
        for key in ("exp_avg", "exp_avg_sq"):
            flat = torch.cat([base["state"][index][key] for base in bases])
            run.update({f"{key}/{name}": part for name, part in split(flat, shapes).items()})
        note_group(run, index, bases[0]["param_groups"][index], bases[0]["state"][index]["step"])


def read_shards(run, folder, model):
    """Stage 3, with one sub-group a group."""
    states = [load(path)["optimizer_state_dict"] for path in optimizer_files(folder)]
    run["scaler"], run["overflow"] = vars(states[0]["loss_scaler"]), states[0]["overflow"]
    bases = [rank["optimizer_state_dict"] for rank in states]
    for index, shapes in enumerate(model["param_shapes"]):
        flats = {"fp32": [rank["fp32_flat_groups"][index] for rank in states]}
        flats.update({key: [base["state"][index][key] for base in bases] for key in ("exp_avg", "exp_avg_sq")})
        for key, parts in flats.items():
            run.update({f"{key}/{name}": whole for name, whole in join(parts, shapes).items()})
        note_group(run, index, bases[0]["param_groups"][index], bases[0]["state"][index]["step"])
    fragments = [load(path)["frozen_param_fragments"] for path in model_files(folder)]
    for name, shape in (model["frozen_param_shapes"] or {}).items():
        run[f"frozen/{name}"] = join([rank[name] for rank in fragments], {name: shape})[name]


def read_plain(run, optimizer, shapes):
    inner = optimizer.get("optimizer_state_dict", optimizer)
    run["scaler"] = {key: optimizer[key] for key in SCALER_KEYS if key in optimizer}
    for index, (group, shape) in enumerate(zip(inner["param_groups"], shapes, strict=True)):
        states = [inner["state"][param] for param in group["params"] if param in inner["state"]]  # not of frozen ones
        # In fp32 DeepSpeed's FusedAdam counts in the last parameter of a group alone.
        note_group(run, index, group, max(state["step"] for state in states))
        flat = optimizer.get("fp32_groups_flat")
        if flat is not None:
            run.update({f"fp32/{name}": part for name, part in split(flat[index], shape).items()})
        for key in ("exp_avg", "exp_avg_sq"):
            parts = split(states[0][key], shape) if flat is not None else dict(zip(shape, [state[key] for state in states], strict=True))
            run.update({f"{key}/{name}": part for name, part in parts.items()})


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    return type(a) is not torch.Tensor and type(b) is not torch.Tensor and a == b


def differences(a, b):
    """Paths at which two runs differ."""
    return sorted(set(a) ^ set(b)) + sorted(key for key in set(a) & set(b) if not same(a[key], b[key]))


def kind_of(value):
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    # betas are a list where the config has them, else a tuple.
    return "sequence" if isinstance(value, (list, tuple)) else type(value).__name__


def form_of_tensors(tensors):
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def form_of_optimizer(state_dict):
    """Of torch's state_dict: per parameter its states, per group its options."""
    states = {
        index: {key: (value.dtype, tuple(value.shape)) if torch.is_tensor(value) else kind_of(value) for key, value in state.items()}
        for index, state in state_dict["state"].items()
    }
    # 'step': a relic in DeepSpeed's groups; 'param_names': torch's own key, which DeepSpeed leaves out.
    groups = [
        {key: kind_of(value) for key, value in group.items() if key not in ("step", "param_names", "params")}
        for group in state_dict["param_groups"]
    ]
    return {"states": states, "groups": [dict(sorted(group.items())) for group in groups]}


def form_of_plain(optimizer, frozen):
    if optimizer is None:
        return None
    inner = optimizer.get("optimizer_state_dict", optimizer)
    form = form_of_optimizer(inner)
    if frozen:  # DeepSpeed counts parameters that it does not train
        form["states"] = list(form["states"].values())
    form["keys"] = sorted(set(optimizer) - {"cur_hysteresis"})  # ours: stage 0 has none in DeepSpeed
    form["fp32_groups_flat"] = [(flat.dtype, tuple(flat.shape)) for flat in optimizer.get("fp32_groups_flat", [])]
    return form


def form_of_partition(state):
    form = {key: kind_of(value) for key, value in state.items()}
    form["base_optimizer_state"] = form_of_optimizer(state["base_optimizer_state"])
    form["single_partition_of_fp32_groups"] = [(part.dtype, tuple(part.shape)) for part in state["single_partition_of_fp32_groups"]]
    for key in ("group_paddings", "partition_count", "zero_stage", "ds_version"):
        form[key] = state[key]
    form["loss_scaler"] = {key: kind_of(value) for key, value in vars(state["loss_scaler"]).items()}
    form["param_slice_mappings"] = [
        [(name, place.numel, place.start) for name, place in group.items()] for group in state["param_slice_mappings"]
    ]
    return form


def form_of_shards(state):
    form = {key: kind_of(value) for key, value in state.items()}
    form["optimizer_state_dict"] = form_of_optimizer(state["optimizer_state_dict"])
    form["fp32_flat_groups"] = [(flat.dtype, tuple(flat.shape)) for flat in state["fp32_flat_groups"]]
    for key in ("partition_count", "zero_stage"):
        form[key] = state[key]
    form["loss_scaler"] = {key: kind_of(value) for key, value in vars(state["loss_scaler"]).items()}
    return form


def form_of(folder, stage, frozen):
    """Names, keys, order, dtypes and shapes of a tag's files, without what is ours to have beside DeepSpeed's."""
    model = load(model_file(folder))
    form = {
        "model keys": sorted(key for key in model if key not in ("note", "epoch")),
        "module": form_of_tensors(model["module"]),
        "buffer_names": sorted(model["buffer_names"]),
        "optimizer": form_of_plain(model["optimizer"], frozen),
        "files": [path.name for path in optimizer_files(folder)],
        "model files": [path.name for path in model_files(folder)],
        "partitions": [
            (form_of_shards if stage == 3 else form_of_partition)(load(path)["optimizer_state_dict"]) for path in optimizer_files(folder)
        ],
    }
    if stage > 0:
        form["param_shapes"] = [list(group.items()) for group in model["param_shapes"]]
        form["shared_params"] = model["shared_params"]
    if stage > 1:  # DeepSpeed loses them at stage 1, and notes shared ones from stage 1 on
        form["frozen"] = (model["frozen_param_shapes"], form_of_tensors(model["frozen_param_fragments"]))
    for key in ("lr_scheduler", "dp_world_size", "mp_world_size", "ds_version"):
        form[key] = model[key]
    return form


def form_differences(a, b, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        found = [f"{path}/{key} only in one" for key in a.keys() ^ b.keys()]
        return found + [line for key in a.keys() & b.keys() for line in form_differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and path != "/model keys":
        return [line for index, pair in enumerate(zip(a, b)) for line in form_differences(*pair, f"{path}/{index}")]
    return [] if a == b else [f"{path}: {a} and {b}"]
