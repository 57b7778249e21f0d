from pathlib import Path

import numpy as np
import pytest

from fastmf.datasets import read_plmc, write_plmc

# Written by plmc (18c9e55): plmc -o plmc_abc.params -a ABC -le 1 -lh .5 -f two x.fa, of ROWS with a
# row BBXCAB after the second.
PLMC = Path(__file__).parent / "plmc_abc.params"
ROWS = ["ABCAAB", "BBCCAB", "ABCCCC", "CBAACB", "AABBCC"]


def potts(L=4, alphabet="-ACGU", dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    q = len(alphabet)
    J = rng.normal(size=(L, q, L, q))
    J = J + J.transpose(2, 3, 0, 1)
    J[np.arange(L), :, np.arange(L)] = 0
    return J.astype(dtype), rng.normal(size=(L, q)).astype(dtype), alphabet


def test_a_file_that_plmc_wrote():
    found = read_plmc(PLMC)
    assert (found.alphabet, found.target) == ("ABC", "BBCCAB")
    assert (found.n_rows, found.n_skipped, found.n_effective) == (5, 1, 5)
    assert (found.lambda_field, found.lambda_couplings, found.lambda_group) == (0.5, 1, 0)
    assert found.theta == np.float32(0.2)
    np.testing.assert_array_equal(found.n_neighbours, [1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(found.positions, np.arange(1, 7))
    # Frequencies of pairs are those of the rows: this fixes the order of their four indices.
    one_hot = np.array([["ABC".index(c) == np.arange(3) for c in row] for row in ROWS], float)
    np.testing.assert_allclose(found.frequencies, one_hot.mean(0), atol=1e-6)
    pairs = np.einsum("sia,sjb->iajb", one_hot, one_hot) / 5
    pairs[np.arange(6), :, np.arange(6)] = 0
    np.testing.assert_allclose(found.pair_frequencies, pairs, atol=1e-6)
    # At the optimum the gradients of couplings and fields vanish: formulas of the ridge.
    J, h = found.couplings.astype(float), found.field.astype(float)
    np.testing.assert_array_equal(J, J.transpose(2, 3, 0, 1))
    eta = h + np.einsum("iajb,sjb->sia", J, one_hot)
    P = np.exp(eta) / np.exp(eta).sum(2, keepdims=True)
    R = one_hot - P
    np.testing.assert_allclose(R.sum(0), 2 * 0.5 * h, atol=0.05)
    gradient = np.einsum("sia,sjb->iajb", one_hot, R)
    gradient = gradient + gradient.transpose(2, 3, 0, 1)
    gradient[np.arange(6), :, np.arange(6)] = 0
    np.testing.assert_allclose(gradient, 2 * J, atol=0.05)


def test_plmc_round_trip_to_the_byte(tmp_path):
    write_plmc(tmp_path / "x", **read_plmc(PLMC)._asdict())
    assert (tmp_path / "x").read_bytes() == PLMC.read_bytes()


def test_plmc_in_float64(tmp_path):
    J, h, alphabet = potts()
    write_plmc(tmp_path / "x", J, h, alphabet, n_neighbours=[1, 0, 2.5])
    single = read_plmc(tmp_path / "x")
    assert single.couplings.dtype == np.float32 and (single.n_rows, single.n_skipped) == (2, 1)
    np.testing.assert_array_equal(single.couplings, J.astype(np.float32))
    np.testing.assert_array_equal(single.field, h.astype(np.float32))
    # The same content with eight bytes a number, as plmc compiled so would write it.
    content, q, L = (tmp_path / "x").read_bytes(), 5, 4
    numbers = [(20, 5), (40 + q, 3), (52 + q + 5 * L, (len(content) - 52 - q - 5 * L) // 4)]
    double, end = content[:20], 20
    for start, n in numbers:
        double += content[end:start]
        double += np.frombuffer(content, "<f4", n, start).astype("<f8").tobytes()
        end = start + 4 * n
    (tmp_path / "y").write_bytes(double)
    again = read_plmc(tmp_path / "y")
    assert again.couplings.dtype == np.float64 and again.positions.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(again.couplings, single.couplings)
    np.testing.assert_array_equal(again.n_neighbours, [1, 0, 2.5])


@pytest.mark.parametrize("cut", [3, 19, 20, 100, 1320])
def test_a_truncated_plmc_file(tmp_path, cut):
    (tmp_path / "x").write_bytes(PLMC.read_bytes()[:cut])
    with pytest.raises(ValueError, match="cannot be read as parameters of plmc") as caught:
        read_plmc(tmp_path / "x")
    assert "\n" not in str(caught.value)


def test_a_plmc_file_of_giant_sizes(tmp_path):
    content = np.array([2**30, 100, 2**30, 0, 0], "<i4").tobytes() + bytes(100)
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="bytes, it has 120"):
        read_plmc(tmp_path / "x")


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_a_plmc_file_of_the_older_format(tmp_path, dtype):
    L, q = 5, 4
    content = np.array([L, q], "<i4").tobytes() + b"ACGUA" + np.arange(L, dtype="<i4").tobytes()
    content += np.zeros(2 * L * q, dtype).tobytes()
    for i in range(L - 1):
        for j in range(i + 1, L):
            content += np.array([i + 1, j + 1], "<i4").tobytes()
            content += np.zeros(2 * q * q, dtype).tobytes()
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=r"x cannot be read as .* plmc: .* older format"):
        read_plmc(tmp_path / "x")
    (tmp_path / "x").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="may be truncated"):
        read_plmc(tmp_path / "x")


def test_damaged_plmc_numbers_and_text(tmp_path):
    content = PLMC.read_bytes()
    (tmp_path / "x").write_bytes(content[:-4] + np.array([np.nan], "<f4").tobytes())
    with pytest.raises(ValueError, match="NaN or infinity"):
        read_plmc(tmp_path / "x")
    (tmp_path / "x").write_bytes(content.replace(b"ABC", b"A\xffC", 1))
    with pytest.raises(ValueError, match="is no text"):
        read_plmc(tmp_path / "x")


def test_names_of_alphabets_are_those_of_load_alignment(tmp_path):
    J, h, _ = potts()
    for name in ("rna", "RNA", "Rna"):
        write_plmc(tmp_path / "y", J, h, name)
        assert read_plmc(tmp_path / "y").alphabet == "-ACGU"


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda J, h: (J[:2], h, "rna"), "couplings must have shape"),
        (lambda J, h: (J, h, "protein"), "field must have shape"),
        (lambda J, h: (J, h * np.nan, "rna"), "field must hold finite numbers"),
        (lambda J, h: (J + 1, h, "rna"), "with itself"),
        (lambda J, h: (np.triu(J.reshape(20, 20)).reshape(J.shape), h, "rna"), "symmetric"),
        (lambda J, h: (J, h, "-ACGG"), "different upper-case letters"),
        (lambda J, h: (J, h, "-ACGß"), "letters or signs"),
    ],
)
def test_what_cannot_be_written(tmp_path, change, says):
    J, h, _ = potts()
    with pytest.raises(ValueError, match=says):
        write_plmc(tmp_path / "x", *change(J, h))
    assert not (tmp_path / "x").exists()


def test_what_plmc_cannot_hold(tmp_path):
    J, h, alphabet = potts()
    with pytest.raises(TypeError, match="no argument"):
        write_plmc(tmp_path / "x", J, h, alphabet, temperature=1)
    with pytest.raises(ValueError, match=r"positions must have shape \(4,\)"):
        write_plmc(tmp_path / "x", J, h, alphabet, positions=[1])
    with pytest.raises(ValueError, match="target must have 4 letters"):
        write_plmc(tmp_path / "x", J, h, alphabet, target="A")
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_plmc(tmp_path / "nowhere" / "x", J, h, alphabet)


@pytest.mark.parametrize(
    ("field", "more"), [(1e39, {}), (1.0, {"frequencies": np.full((2, 5), np.nan)})]
)
def test_numbers_that_plmc_s_type_does_not_hold_are_refused(tmp_path, field, more):
    with pytest.raises(ValueError, match="finite numbers of single precision"):
        write_plmc(tmp_path / "x", np.zeros((2, 5, 2, 5)), np.full((2, 5), field), "-ACGU", **more)
    assert not (tmp_path / "x").exists()
