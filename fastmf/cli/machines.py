"""Commands that apply or describe trained machines and models."""

import dataclasses

import numpy as np

import fastmf
from fastmf.cli import _options, _rows
from fastmf.datasets.alignments import is_alignment, residues_of, rows_named
from fastmf.datasets.files import beginning
from fastmf.learning.training.trainer import run_in
from fastmf.models._io import model_from_arrays, reading
from fastmf.priors._protocol import is_unit_prior, n_units


def add_rows(parser):
    """Add options for reading rows of numbers or sequences."""
    _rows.add_data(parser)
    _rows.add_alignment(parser, "focus", "inserts")


add_score = add_impute = add_mutants = add_rows
add_predict = _rows.add_data

# --- score ----------------------------------------------------------------------------------------


def score(arguments):
    """Compute the log-likelihood of each row of data under a trained machine, in nats.

    examples:
      fastmf score model.npz test.npy
          log-likelihood of each row, in scores.csv, and their mean
      fastmf score family.npz sequences.fasta --energy --output energies.csv
          energies of sequences; -energy is the log-probability up to a constant

    For machines with hidden units these are log-likelihoods; if the exact log-partition is too
    expensive, it is estimated by annealing, and its standard error is printed. For machines without
    hidden units they are log-pseudo-likelihoods. Missing values in a row are ignored. All values
    are in nats per row.

    Options
    -------
    MODEL
        file of a trained machine
    DATA
        rows of numbers, or aligned sequences
    -o, --output FILE = scores.csv
        where to write: .npy, .npz or .csv
    --energy
        write energies instead of likelihoods
    """
    _rows.check_files(arguments)
    machine = _rows.load(arguments.model, "score_samples")
    method = "energy" if arguments.energy else "score_samples"
    if not hasattr(machine, method):
        raise ValueError(
            f"--energy is for machines of visible units alone, not a {type(machine).__name__}."
        )
    table, _ = _rows.read_rows(arguments.data, machine, arguments)
    scores = np.asarray(getattr(machine, method)(table.X))
    likelihood = "log-likelihood" if hasattr(machine, "solutions") else "log-pseudo-likelihood"
    what = "energy" if arguments.energy else likelihood
    named = {"columns": [what.replace("-", "_")], "id_column": table.id_column or "row"}
    _rows.write(arguments.output, table._replace(X=scores, **named))
    print(f"{arguments.output}: {len(scores)} rows")
    error = 0.0 if arguments.energy else getattr(machine, "log_partition_error_", 0.0)
    error = f" (standard error of the log-partition: {error:.2g})" if error else ""
    print(f"mean {what}: {scores.mean():.5g} nats a row{error}")


# --- sample ---------------------------------------------------------------------------------------


def add_sample(parser):
    """Add the options of `sample` that are made from signatures."""
    names = ("n_samples", "n_sweeps", "start")
    _options.add_parameters(parser, fastmf.GeneralizedRBM.sample, names, n_samples=1000)
    _rows.add_alignment(parser)


def sample(arguments):
    """Draw samples from a trained machine, by Gibbs sampling or, for small machines, exactly.

    examples:
      fastmf sample model.npz -n 1000 --output samples.npy
          a thousand samples, each the last state of a Gibbs chain of 100 sweeps
      fastmf sample model.npz -n 100 --sweeps 1000 --start data
          chains that start at data
      fastmf sample family.npz -n 5000 --output samples.fasta
          sequences, from a machine trained on an alignment by fastmf dca or fastmf train

    Options
    -------
    MODEL
        file of a trained machine
    -o, --output FILE = samples.npy
        where to write: .npy, .npz, .csv or .fasta
    --seed N = 0
        seed of the random numbers
    """
    _rows.check_files(arguments, _options.OUTPUTS + _rows.FASTA)
    machine = _rows.load(arguments.model, "sample")
    if arguments.start is not None and not hasattr(machine, "solutions"):
        raise ValueError(
            f"--start is for machines with hidden units, not a {type(machine).__name__}."
        )
    options = _options.given(arguments, "n_samples", "n_sweeps", "start", "random_state")
    X = machine.sample(**options)
    _rows.write_rows(arguments.output, _rows.Rows(X, None, None), machine, arguments)


# --- denoise --------------------------------------------------------------------------------------


def add_denoise(parser):
    """Add the options of `denoise` that are made from signatures."""
    method = fastmf.GeneralizedRBM.denoise
    _options.add_parameters(parser, method, ("n_starts",))
    noise = parser.add_argument_group("noise (one of them)")
    one = noise.add_mutually_exclusive_group(required=True)
    _options.add_parameters(one, method, ("flip_probability", "noise_variance"))
    _rows.add_data(parser)


def denoise(arguments):
    """Compute posterior means of the visible units given noisy observations.

    examples:
      fastmf denoise model.npz noisy.npy --flip-probability 0.1 --output restored.npy
          binary data whose entries were flipped with probability 0.1
      fastmf denoise model.npz noisy.npy --noise-variance 0.04 --output restored.csv
          real values with Gaussian noise of standard deviation 0.2
      fastmf denoise model.npz noisy.npy --flip-probability 0.3 --n-starts 10 --candidates train.npy
          strong noise: average over several mean-field solutions, starting at the training data
          nearest to the noisy data

    Options
    -------
    MODEL
        file written by fastmf train
    DATA
        noisy data, one sample per row
    -o, --output FILE = denoised.npy
        where to write: .npy, .npz or .csv
    --candidates FILE
        clean data to start from [rows in the model]
    --seed N = 0
        seed of the random numbers
    """
    _rows.check_files(arguments)
    machine = fastmf.GeneralizedRBM.load(arguments.model)
    table = _rows.read_table(arguments.data, machine, arguments)
    names = "flip_probability", "noise_variance", "n_starts", "random_state"
    options = _options.given(arguments, *names)
    if arguments.candidates is not None:
        candidates = _rows.read_table(arguments.candidates, machine, arguments, all_rows=True)
        options["candidates"] = candidates.X
    estimate = machine.denoise(table.X, **options)
    _rows.write_rows(arguments.output, table._replace(X=estimate), machine, arguments)


# --- impute ---------------------------------------------------------------------------------------


def impute(arguments):
    """Fill in the missing values of a table or of sequences by a trained machine.

    examples:
      fastmf train rbm table.csv --visible gaussian --hidden-units 8 --output model.npz
      fastmf impute model.npz table.csv --output complete.csv
          empty cells are replaced by conditional means, or by the most probable category
      fastmf impute family.npz fragments.fasta --output whole.fasta
          unknown letters (X) are replaced, and gaps if the machine has no state for gaps

    Options
    -------
    MODEL
        file of a trained machine
    DATA
        rows with empty cells or NaN, or aligned sequences
    -o, --output FILE = imputed.npy
        where to write: .npy, .npz, .csv or .fasta
    """
    from fastmf.estimators.common.data import missing_entries  # requires scikit-learn

    _rows.check_files(arguments, _options.OUTPUTS + _rows.FASTA)
    machine = _rows.load(arguments.model, "impute")
    table, alignment = _rows.read_rows(arguments.data, machine, arguments)
    X = np.asarray(table.X)
    n_missing = int((missing_entries(X) if alignment is None else X < 0).sum())
    complete = table._replace(X=machine.impute(table.X))
    _rows.write_rows(arguments.output, complete, machine, arguments)
    print(f"{n_missing} of {X.size} values were missing")


# --- mutants --------------------------------------------------------------------------------------


def mutants(arguments):
    """Compute the changes of log-probability by all single mutations of a sequence.

    examples:
      fastmf dca DHFR.a2m --focus DYR_ECOLI --model family.npz
      fastmf mutants family.npz DHFR.a2m --focus DYR_ECOLI --plot mutants.png
          all single mutations of E. coli's sequence
      fastmf mutants family.npz sequences.fasta --sequence second

    The table has one line for each mutation: site (from 1), column of the alignment, letter before
    and after, the change of the log-probability in nats (positive if the mutant is more probable),
    and the number of the residue in the sequence, counted from the number in its title
    (NAME/24-45) or from 1.

    Options
    -------
    MODEL
        machine written by fastmf dca --model
    DATA
        sequences with the same alignment as the machine's training data
    --sequence NAME
        name of the sequence to mutate [that of --focus, or the first]
    -o, --output CSV = mutants.csv
        table
    --plot PNG
        picture to write: effects as colours
    """
    _rows.check_files(arguments, (".csv",))
    machine = _rows.load(arguments.model, "mutants")
    table, alignment = _rows.read_rows(arguments.data, machine, arguments)
    alphabet = _rows.alphabet_of(machine, arguments)
    if alignment is None:
        raise ValueError(f"{arguments.data} is no alignment; give sequences.")
    X, names, columns = table.X, alignment.names, alignment.columns + 1
    chosen = arguments.sequence or arguments.focus
    rows = [0] if chosen is None else rows_named(names, chosen)
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} sequences are named {chosen}, expected one.")
    (row,) = rows
    x = X[row]
    if (x < 0).any():
        raise ValueError(
            f"{names[row]} lacks a letter of the alphabet {alphabet} at site "
            f"{np.argmax(x < 0) + 1}: `fastmf impute` it first."
        )
    effects = machine.mutants(x)
    inserts = _options.given(arguments, "inserts")
    residues = residues_of(arguments.data, names[row], alignment, **inserts)
    letters, numbers = np.array(list(alphabet)), np.array([residue[1:] for residue in residues])
    sites, states = np.nonzero(np.arange(len(letters)) != x[:, None])
    table = {
        "site": sites + 1, "column": columns[sites], "from": letters[x[sites]],
        "to": letters[states], "effect": effects[sites, states], "residue": numbers[sites],
    }  # fmt: skip
    _rows.write_columns(arguments.output, table)
    best = {name: column[table["effect"].argmax()] for name, column in table.items()}
    place = best["residue"] or f"(column {best['column']})"
    print(f"{arguments.output}: {len(sites)} mutations of {names[row]}")
    print(f"largest change: {best['from']}{place}{best['to']} {best['effect']:+.3g} nats")
    if arguments.plot is not None:
        figure = fastmf.plotting.mutation_matrix(effects, alphabet, sequence=x)
        _rows.write_figure(arguments.plot, figure)


# --- predict --------------------------------------------------------------------------------------


def predict(arguments):
    """Predict targets of new rows by a regression model, or labels by a conditional machine.

    example:
      fastmf regress table.csv --target yield --model model.npz
      fastmf predict model.npz new.csv --output predictions.csv
          one line for each row; columns are matched by their names

    Options
    -------
    MODEL
        file of a fitted estimator
    DATA
        rows of features
    -o, --output FILE = predictions.csv
        where to write: .npy, .npz or .csv
    """
    _rows.check_files(arguments)
    machine = _rows.load(arguments.model, "predict")
    arguments.dtype = "float64"
    table = _rows.read_table(arguments.data, machine, arguments)
    predictions = machine.predict(table.X)
    names = [f"prediction_{k}" for k in range(1, 1 + np.size(predictions[0]))]
    names = names if len(names) > 1 else ["prediction"]
    _rows.write(arguments.output, table._replace(X=predictions, columns=names))
    print(f"{arguments.output}: {len(predictions)} rows")


# --- tap ------------------------------------------------------------------------------------------


def tap(arguments):
    """Compute marginals and log-partition of a model by mean field (TAP) or other solvers.

    examples:
      fastmf tap model.npz
          means and variances of all units in marginals.csv, and the log-partition
      fastmf tap model.npz --method bp
          by belief propagation; also relaxed_bp, adaptive_tap and, for small models, exact
      fastmf tap grid.uai --evidence grid.uai.evid --method bp
          a model in UAI format (.uai, or .LG for logarithms), with observed variables

    MODEL is a model written by its method save, a trained machine, or a network in UAI format. The
    table has one line for each unit; a variable with several states is a group of units, whose
    means are the probabilities of the states.

    Options
    -------
    MODEL
        file of a model
    -o, --output CSV = marginals.csv
        table
    --method {tap,bp,relaxed_bp,adaptive_tap,exact} = tap
        solver
    --evidence FILE
        observed variables of a UAI network
    --max-iter N
        largest number of sweeps [the default of the method]
    """
    method = arguments.method
    _options.check_outputs([arguments.model, arguments.clamp], (arguments.output, (".csv",)))
    model, clamp, log_factor, n_variables = _model_to_solve(arguments)
    options = _options.given(arguments, "max_iter")
    if clamp is not None:
        if method == "adaptive_tap":
            raise ValueError("--method adaptive_tap takes no --evidence.")
        options["clamp"] = clamp
    if method == "exact" and "max_iter" in options:
        raise ValueError("--method exact has no sweeps: leave out --max-iter.")
    result = getattr(fastmf, "belief_propagation" if method == "bp" else method)(model, **options)
    means, variances = result.mean, getattr(result, "var", None)
    if n_variables is not None:  # omit the auxiliary units of factors
        n = model.prior.sizes[:n_variables].sum()
        means, variances = means[:n], None if variances is None else variances[:n]
    _write_marginals(arguments.output, means, variances)
    value = float(result.log_partition) + log_factor
    print(f"log-partition: {value:.8g} nats ({value / np.log(10):.8g} in base 10)")
    if method != "exact":
        print(f"{result.message}, {int(result.n_iter)} sweeps")


def _model_to_solve(arguments):
    """Load a model; return it with clamped units, log of a constant factor, number of variables."""
    if arguments.model.lower().removesuffix(".gz").endswith((".uai", ".lg")):
        return fastmf.datasets.load_uai(arguments.model, arguments.clamp)
    if arguments.clamp is not None:
        raise ValueError("--evidence is for networks in UAI format (*.uai, *.LG).")
    machine = _rows.load(arguments.model)
    return getattr(machine, "model_", machine), None, 0.0, None


def _write_marginals(path, means, variances):
    """Write one line for each unit: layer, number within the layer, mean and variance."""
    means, variances = (x if isinstance(x, tuple) else (x,) for x in (means, variances))
    sizes = list(map(len, means))
    table = {
        "layer": np.repeat(np.arange(len(sizes)) + 1, sizes),
        "unit": np.concatenate([np.arange(n) + 1 for n in sizes]),
        "mean": np.concatenate(means),
        "variance": [""] * sum(sizes) if variances[0] is None else np.concatenate(variances),
    }
    _rows.write_columns(path, table)
    print(f"{path}: {sum(sizes)} units")


# --- info -----------------------------------------------------------------------------------------


def add_info(parser):
    """Add the options of `info` that are made from signatures."""
    _rows.add_alignment(parser, "identity")


def info(arguments):
    """Describe a file: a trained machine, a model, a checkpoint, an alignment or an array.

    examples:
      fastmf info model.npz
      fastmf info run.npz
          the number of finished epochs of a checkpoint
      fastmf info PF00014.fasta.gz
      fastmf info potts3.a2m --alphabet '_*^'

    Options
    -------
    FILE
        file to describe
    """
    if is_alignment(arguments.file):
        properties = _alignment(arguments)
    elif beginning(arguments.file, 2) == b"PK":
        properties = _machine_or_model(arguments.file)
    else:
        properties = {"array": _described(fastmf.datasets.read_array(arguments.file))}
    for name, value in properties.items():
        print(f"{name.replace('_', ' '):{max(map(len, properties)) + 2}}{value}")


def _alignment(arguments):
    alignment = fastmf.datasets.load_alignment(arguments.file, arguments.alphabet)
    effective = fastmf.datasets.sequence_weights(alignment.X, arguments.identity).sum()
    return {
        "alignment": f"{len(alignment.rows)} sequences, {len(alignment.columns)} columns",
        "alphabet": f"{alignment.alphabet} ({len(alignment.alphabet)} states)",
        "effective number": f"{effective:.1f} sequences at {arguments.identity:.0%} identity",
    }


def _machine_or_model(path):
    with reading(path, "a file") as arrays:
        if "run" in arrays:
            epoch = arrays.member("position", "iu", (None,), low=0)[0]
            progress = f"after {epoch} of {run_in(arrays)['n_epochs']} epochs"
            return {"checkpoint": progress} | _model(model_from_arrays(arrays.under("model")))
    machine = _rows.load(path)
    if not hasattr(machine, "fit"):
        return _model(machine)
    properties = {"machine": " ".join(repr(machine).split()), "features": machine.n_features_in_}
    return properties | (_model(machine.model_) if hasattr(machine, "model_") else {})


def _model(model):
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return {"model": type(model).__name__} | {name: _described(x) for name, x in fields.items()}


def _described(part):
    """Return a text with units, the shape of an array, or a number, for each part."""
    if is_unit_prior(part):
        return f"{n_units(part)} {type(part).__name__}"
    if type(part) is tuple:
        return "; ".join(map(_described, part))
    return f"{' x '.join(map(str, part.shape))}, {part.dtype}" if np.ndim(part) else f"{part:g}"
