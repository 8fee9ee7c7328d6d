"""Any object of Python stands in client_state; classes that are no safe globals are made again only on demand."""
from launching import run


def test_objects_come_back(tmp_path):
    run("client_state.py", {"folder": str(tmp_path)}, ranks=1)
