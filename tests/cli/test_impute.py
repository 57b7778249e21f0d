import numpy as np

import fastmf as mf
from fastmf.cli import main
from fastmf.datasets import load_alignment


def test_a_table_with_empty_cells(model, stripes, tmp_path, capsys):
    X = stripes[:20].astype(float)
    X[0, :4] = np.nan
    lines = [",".join("" if np.isnan(x) else f"{x:g}" for x in row) for row in X]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    output = tmp_path / "out.npy"
    assert main(["impute", str(model), str(tmp_path / "x.csv"), "-o", str(output)]) == 0
    found = np.load(output)
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(found[seen], X[seen])
    # Enumeration of the missing pixels, hidden units summed.
    rbm = mf.GeneralizedRBM.load(model).model_
    v = np.repeat(X[:1], 16, axis=0)
    v[:, :4] = (np.arange(16)[:, None] >> np.arange(4)) & 1
    log_p = v @ rbm.visible.field + np.logaddexp(0, rbm.hidden.field + v @ rbm.weights).sum(1)
    expected = np.exp(log_p - np.logaddexp.reduce(log_p)) @ v[:, :4]
    np.testing.assert_allclose(found[0, :4], expected, atol=1e-4)
    assert "4 of 320 values were missing" in capsys.readouterr().out


def test_letters_that_are_not_known(family, tmp_path):
    machine_file, _, _ = family
    (tmp_path / "x.fasta").write_text(">one\nACGUAN\n>two\nACGUAC\n")
    output = tmp_path / "out.fasta"
    assert main(["impute", str(machine_file), str(tmp_path / "x.fasta"), "-o", str(output)]) == 0
    found = load_alignment(output, "rna")
    assert found.names == ["one", "two"]
    np.testing.assert_array_equal(found.X[1], [1, 2, 3, 4, 1, 2])
    conditional = mf.PottsMachine.load(machine_file).conditional_proba([[1, 2, 3, 4, 1, 0]])
    assert found.X[0, 5] == conditional[0, -5:].argmax() == 3  # pairs with A: 4 - 1
