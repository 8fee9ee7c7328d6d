"""Holds the imports of python/deepspeed against python_rooms.txt, as layers_test.cpp holds those of the C++ files."""

import ast
import collections
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "deepspeed"
MOST_FILES = 24  # of a folder


def modules_of(package):
    """Returns {module: (path, names that it imports)}: names without "deepspeed.", a package as "utils/", the whole one as "/"."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1]) + "/" if parts[-1] == "__init__" else ".".join(parts)
        found[name] = (path, imported_by(path))
    return found


def imported_by(path):
    """Returns the dotted names that a file imports from the package, wherever the import stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: an import that begins with a dot: write the whole name"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name.removeprefix("deepspeed").removeprefix(".") for name in names if name.split(".")[0] == "deepspeed"}


def edges_of(modules):
    """Returns {module: modules that it imports}. An imported name that is no module belongs to the module before its last dot."""
    edges = {}
    for module, (_, names) in modules.items():
        edges[module] = set()
        for name in names:
            parent = name.rpartition(".")[0]
            candidates = (name, name + "/", parent, parent + "/")
            target = next((each for each in candidates if each in modules), None)
            if target is not None and target != module:
                edges[module].add(target)
    return edges


def read_rooms(text):
    """Returns ({room: rooms right of its arrow}, {name of a module or of a package: room})."""
    arrows, homes, room = {}, {}, ""
    for line in text.splitlines():
        if line.startswith(" "):
            twice = homes.keys() & set(line.split())
            assert not twice, f"the table lists {twice} twice"
            homes.update(dict.fromkeys(line.split(), room))
        elif line and not line.startswith("#"):
            room, _, targets = (part.strip() for part in line.partition("->"))
            arrows[room] = set(targets.split())
    return arrows, homes


def home_of(module, homes):
    """Returns (room, the name of the table that decides), or (None, None)."""
    if module in homes:
        return homes[module], module
    prefix = module.rstrip("/")
    while prefix and prefix not in homes:
        prefix = prefix.rpartition(".")[0]
    return homes.get(prefix), prefix or None


def closed(arrows):
    """Returns the arrows with what the targets may import."""
    allowed = {room: set(targets) for room, targets in arrows.items()}
    for _ in allowed:
        for targets in allowed.values():
            targets.update(*(allowed[target] for target in list(targets)))
    return allowed


def circles(edges):
    """Returns the groups of nodes that reach each other."""
    reached = {}
    for start in edges:
        found, waiting = set(), [start]
        while waiting:
            for target in edges.get(waiting.pop(), ()):
                if target not in found:
                    found.add(target)
                    waiting.append(target)
        reached[start] = found
    groups = {tuple(sorted(other for other in found if start in reached.get(other, ()))) for start, found in reached.items()}
    return sorted(group for group in groups if group)


def faults_of(modules, table):
    """Returns a sentence for each rule that is broken."""
    arrows, homes = read_rooms(table)
    edges, allowed = edges_of(modules), closed(arrows)
    faults = [f"rooms in a circle: {', '.join(group)}" for group in circles(arrows)]
    faults += [f"modules that import each other in a circle: {', '.join(group)}" for group in circles(edges)]
    decided = {module: home_of(module, homes) for module in modules}
    rooms = {module: room for module, (room, _) in decided.items()}
    idle = homes.keys() - {name for _, name in decided.values()}
    faults += [f"{module}: no room of the table has it" for module, room in rooms.items() if room is None]
    faults += [f"{name}: the table names it, and it decides for no module" for name in sorted(idle)]
    imports = sorted((module, target) for module, targets in edges.items() for target in targets if rooms[module] != rooms[target])
    for module, target in imports:
        if rooms[target] not in allowed.get(rooms[module], ()):
            faults.append(f"{module} imports {target}: {rooms[module]} may not import {rooms[target]}")
    used = {(rooms[module], rooms[target]) for module, target in imports}
    unused = {(room, target) for room, targets in arrows.items() for target in targets} - used
    return faults + [f"{room} -> {target} is used by no import" for room, target in sorted(unused)]


def test_keeps_imports_within_the_rooms_of_the_table():
    assert faults_of(modules_of(PACKAGE), (pathlib.Path(__file__).parent / "python_rooms.txt").read_text()) == []


def test_keeps_folders_small():
    files = collections.Counter(path.parent for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyi"))
    assert {str(folder): count for folder, count in files.items() if count > MOST_FILES} == {}


def write(folder, **files):
    for name, text in files.items():
        path = folder.joinpath(*name.split("__"))
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.with_suffix(".py").write_text(text)


def test_finds_broken_rules(tmp_path):
    table = "high -> low\n    / high\nlow ->\n    low\n"
    write(tmp_path, high="from deepspeed.low import one", low__one="", low__two="import deepspeed.low.one")
    assert faults_of(modules_of(tmp_path), table) == []
    write(tmp_path, low__one="def f():\n    from deepspeed import high")
    assert faults_of(modules_of(tmp_path), table) == [
        "modules that import each other in a circle: high, low.one",
        "low.one imports high: low may not import high",
    ]
    write(tmp_path, high="", low__one="if TYPE_CHECKING:\n    from deepspeed.low.two import Two")
    assert faults_of(modules_of(tmp_path), table) == [
        "modules that import each other in a circle: low.one, low.two",
        "high -> low is used by no import",
    ]
    write(tmp_path, low__one="", other="")
    assert faults_of(modules_of(tmp_path), table + "last ->\n    gone\n") == [
        "other: no room of the table has it",
        "gone: the table names it, and it decides for no module",
        "high -> low is used by no import",
    ]
    assert faults_of({}, "a -> b\nb -> a\n")[0] == "rooms in a circle: a, b"
