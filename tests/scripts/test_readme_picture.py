import pytest


def test_a_short_run_gives_a_picture(load, tmp_path):
    for package in ("matplotlib", "threadpoolctl"):
        pytest.importorskip(package)
    path = tmp_path / "digits.png"
    load("readme_picture").main(["--epochs", "1", "--output", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")
