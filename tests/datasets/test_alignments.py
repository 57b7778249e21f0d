import bz2
import gzip
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmf.datasets import load_alignment, write_fasta
from fastmf.datasets.alignments import ALPHABETS, is_alignment, load_and_compare, residues_of

A2M = """>focus/3-7 a title
AC-g.DE
>second/1-6
acWgh-E
>third
ACXg.DE
>fourth
A-
Dk.ax
"""
STOCKHOLM = """# STOCKHOLM 1.0
#=GF ID   Test

one/1-4   ACg.
two       -WgD
#=GC RF   xx.x

one/1-4   DE
two       .E
//
"""


def write(folder, text, name="x"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def letters(alignment):
    return ["".join(alignment.alphabet[k] if k >= 0 else "?" for k in row) for row in alignment.X]


def load(folder, text, *arguments, **options):
    return load_alignment(write(folder, text), *arguments, **options)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a2m(tmp_path, compress, newline):
    text = A2M.replace("\n", newline).encode()
    found = load(tmp_path, gzip.compress(text) if compress else text)
    assert letters(found) == ["AC-DE", "ACW-E"]
    assert found.names == ["focus/3-7", "second/1-6"]
    assert repr(found).endswith("columns of shape (5,), alphabet='-ACDEFGHIKLMNPQRSTVWY')")
    np.testing.assert_array_equal(found.rows, [0, 1])
    np.testing.assert_array_equal(found.columns, [0, 1, 2, 5, 6])
    assert found.X.dtype == np.int8


@pytest.mark.parametrize("title, first", [("focus/3-7", 3), ("focus", 1), ("focus/x-7", 1)])
def test_residues_of_a_focus(tmp_path, title, first):
    path = write(tmp_path, A2M.replace("focus/3-7", title))
    found = load_alignment(path, focus="focus")
    numbers = [0, 1, 3, 4]  # the insert g counts
    expected = [f"{x}{n + first}" for x, n in zip("ACDE", numbers, strict=True)]
    assert residues_of(path, "focus", found) == expected
    some = found._replace(columns=found.columns[[1, 3]])
    assert residues_of(path, "focus", some) == [expected[1], expected[3]]
    kept = load_alignment(path, focus="focus", inserts="keep")
    assert residues_of(path, "focus", kept, "keep")[2] == f"g{first + 2}"
    # Rows without dots are aligned after their inserts are removed.
    bare = write(tmp_path, f">other\nA-D*\n>{title}\nAgaCD*\n")
    found = load_alignment(bare, focus="focus")
    assert residues_of(bare, "focus", found) == [f"A{first}", f"C{first + 3}", f"D{first + 4}"]
    own = write(tmp_path, f">{title}\n_^*\n>other\n^_*\n")
    found = load_alignment(own, "_*^", focus="focus")
    assert residues_of(own, "focus", found) == [f"_{first}", f"^{first + 1}", f"*{first + 2}"]


def test_inserts_can_be_kept(tmp_path):
    found = load(tmp_path, A2M, inserts="keep")
    assert letters(found) == ["AC-G-DE", "ACWGH-E"]


@pytest.mark.parametrize("focus", ["focus", "focus/3-7", "foc"])
def test_columns_of_a_focus(tmp_path, focus):
    found = load(tmp_path, A2M, focus=focus)
    np.testing.assert_array_equal(found.columns, [0, 1, 5, 6])
    assert letters(found) == ["ACDE", "AC-E", "ACDE"]  # X of the third is in another column
    np.testing.assert_array_equal(found.rows, [0, 1, 2])
    kept = load(tmp_path, A2M, focus=focus, inserts="keep")
    np.testing.assert_array_equal(kept.columns, [0, 1, 3, 5, 6])


def test_gaps_as_missing_data(tmp_path):
    found = load(tmp_path, A2M, gaps="missing")
    assert letters(found) == ["AC?DE", "ACW?E"] and found.alphabet == "ACDEFGHIKLMNPQRSTVWY"
    assert found.X.min() == -1
    own = load(tmp_path, ">a\n*_\n>b\n.^\n", "_*^", gaps="missing")
    np.testing.assert_array_equal(own.X, [[1, 0], [-1, 2]])
    assert own.alphabet == "_*^"


def test_alphabets(tmp_path):
    text = ">a\nAC.GU\n>b\nACCGt\n>c\nACNGU\n"  # T of DNA is U of RNA
    assert letters(load(tmp_path, text, "RNA")) == ["AC-GU", "ACCGU"]
    assert letters(load(tmp_path, text, "dna", outside="gap")) == ["AC-GT", "ACCGT", "AC-GT"]
    assert load(tmp_path, ">a\nAC.GT\n", ".ACGT").X.tolist() == [[1, 2, 0, 3, 4]]
    assert load(tmp_path, ">a\nGATTACA\n", "CATG").X.tolist() == [[3, 1, 2, 2, 1, 0, 1]]


@pytest.mark.parametrize(
    "sequences, alphabet",
    [("ACGU", "rna"), ("ACGT", "dna"), ("ACGA", "rna"), ("MKVL", "protein"), ("--AC", "rna")],
)
def test_the_alphabet_that_fits(tmp_path, sequences, alphabet):
    found = load(tmp_path, f">a\n{sequences}\n>b\n{sequences[::-1]}\n", None)
    assert found.alphabet == ALPHABETS[alphabet]


PROTEIN = "MKVLAEFIPQRSTWYCDGHN"


@pytest.mark.parametrize("rows, alphabet", [
    ([PROTEIN + "X", PROTEIN[::-1] + "X"], "protein"),  # no row is within any alphabet
    ([PROTEIN + "B", "-" * 21, "ACG-" * 5 + "A"], "protein"),  # all RNA that there is
    (["ACGUN"] * 10, "rna"),
    (["ACGTN"] * 10, "dna"),
    (["ACGTRYN"] + ["ACGTACG"] * 6, "dna"),
    (["NNNNNACG"] * 10, "rna"),
    (["GAGAGSGAGAGS"] * 10, "protein"),  # silk
])  # fmt: skip
def test_the_alphabet_of_most_letters_fits(tmp_path, rows, alphabet):
    path = write(tmp_path, "".join(f">x\n{row}\n" for row in rows))
    letters = ALPHABETS[alphabet]
    if any(set(row) <= set(letters) for row in rows):
        assert load_alignment(path, None).alphabet == letters
    else:
        with pytest.raises(ValueError, match=f"no sequence is within the alphabet {letters}; "):
            load_alignment(path, None)


@pytest.mark.parametrize(
    "text, expected, columns",
    [
        (">a\nACDE*\n>b\nAC-E*\n", ["ACDE", "AC-E"], [0, 1, 2, 3]),
        (">a\nACDE*\n>b\nAC-E-\n", ["ACDE-", "AC-E-"], [0, 1, 2, 3, 4]),
        (">a\nACDE*\n>b\nAC-E\n", ["ACDE", "AC-E"], [0, 1, 2, 3]),
        (">a\nACDE*\n>b\nAC*--\n", ["ACDE-", "AC---"], [0, 1, 2, 3, 4]),
        (">a\nACdD*\n>b\nACD*\n", ["ACD", "ACD"], [0, 1, 2]),
        (">a\nACdD*\n>b\nAC-D\n>c\nACD-\n", ["ACD-", "AC-D", "ACD-"], [0, 1, 2, 3]),
        (">a\nAC*DE\n>b\nACD-E\n", ["ACD-E"], range(5)),  # a star within a row
        # Inserts with dots, without them and of different lengths.
        (">a\nAcC.-D\n>b\nA.CwWD\n", ["AC-D", "ACWD"], [0, 2, 4, 5]),
        (">a\nAcC-D\n>b\nACwWD\n", ["AC-D", "ACWD"], [0, 1, 2, 3]),
        (">a\nAcaaC-D\n>b\nACwWD\n", ["AC-D", "ACWD"], [0, 1, 2, 3]),
        (STOCKHOLM, ["AC-DE", "-WD-E"], [0, 1, 3, 4, 5]),
        ("# STOCKHOLM 1.0\na ~~DEFG\nb AC_EFG\nc ACDE~~\n//\n", ["--DEFG", "AC-EFG", "ACDE--"],
         range(6)),
        ("#A3M#\n>q\nACDEFGH\n>b\nACkDEF-H\n", ["ACDEFGH", "ACDEF-H"], range(7)),
        ("#52\t1\n; by hand\n\n>q\nACD\n", ["ACD"], range(3)),
        ("\ufeff#A3M#\r\n>q\r\nACD\r\n", ["ACD"], range(3)),
        ("CLUSTAL W (1.83) multiple sequence alignment\n\n\none   ACDE 4\ntwo   A-DE 3\n      * **"
         "\n\none   FG 6\ntwo   -G 4\n      .:\n", ["ACDEFG", "A-DE-G"], range(6)),
        ("MUSCLE (3.8) multiple sequence alignment\n\none ACDE\ntwo A-DE\n", ["ACDE", "A-DE"],
         range(4)),
        ("CLUSTAL O(1.2.4)\r\n\r\none ACDE\r\ntwo A-DE\r\n", ["ACDE", "A-DE"], range(4)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("alphabet", ["protein", None])
def test_formats_as_they_are_met(tmp_path, text, expected, columns, alphabet):
    for content in (text.encode(), gzip.compress(text.encode())):
        assert is_alignment(write(tmp_path, content))
        found = load(tmp_path, content, alphabet or ALPHABETS["protein"])
        assert letters(found) == expected
        np.testing.assert_array_equal(found.columns, columns)


def test_letters_outside_the_alphabet_can_be_gaps_or_missing(tmp_path):
    text = ">a\nACD\n>b\nAXZ\n>c\nA-x\n>d\nA*D\n>e\nA1D\n"
    as_gaps = load(tmp_path, text, outside="gap")
    assert letters(as_gaps) == ["ACD", "A--", "A--"] and as_gaps.names == ["a", "b", "c"]
    missing = load(tmp_path, text, outside="missing")
    assert letters(missing) == ["ACD", "A??", "A-?"]
    both = load(tmp_path, text, gaps="missing", outside="gap")
    assert letters(both) == ["ACD", "A??", "A??"] and "-" not in both.alphabet
    assert letters(load(tmp_path, ">a\nAC-GN\n", "rna", outside="gap")) == ["AC-G-"]
    with pytest.raises(ValueError, match="outside='gap' needs a gap"):
        load(tmp_path, text, "ACD", outside="gap")
    assert letters(load(tmp_path, ">a\nACX\n", "ACD", outside="missing")) == ["AC?"]


def test_rows_and_then_columns_of_many_gaps_are_left_out(tmp_path):
    rows = ["ACDE", "A--E", "A---", "----", "ACD-", "AC-E"]
    text = "".join(f">{k}\n{row}\n" for k, row in enumerate(rows))
    for options in ({"gaps": "state"}, {"gaps": "missing"}):
        found = load(tmp_path, text, max_gaps=0.5, **options)
        assert found.rows.tolist() == [0, 1, 4, 5] and found.names == ["0", "1", "4", "5"]
        assert found.columns.tolist() == [0, 1, 2, 3]
        # Of the four rows 0, 1, 2 and 1 have gaps in the columns.
        found = load(tmp_path, text, max_gaps=(0.5, 0.4), **options)
        assert found.rows.tolist() == [0, 1, 4, 5] and found.columns.tolist() == [0, 1, 3]
        assert found.X.shape == (4, 3)
    _, left_out = load_and_compare(write(tmp_path, text), max_gaps=(0.5, 0.4))
    assert left_out == [
        "2 of 6 sequences left out: more than 50% gaps",
        "1 of 4 columns left out: more than 40% gaps",
    ]
    assert load(tmp_path, text, max_gaps=0).rows.tolist() == [0]
    np.testing.assert_array_equal(load(tmp_path, text, max_gaps=1).X, load(tmp_path, text).X)
    for max_gaps, error, says in (
        (1.5, ValueError, "max_gaps must be in"),
        ((0.5,), ValueError, "a number or two"),
        ("x", TypeError, "max_gaps must be a number"),
        ((0.5, np.nan), ValueError, "max_gaps must be in"),
    ):
        with pytest.raises(error, match=says):
            load(tmp_path, text, max_gaps=max_gaps)
    with pytest.raises(ValueError, match="no sequence is left with as few gaps"):
        load(tmp_path, ">a\nA-\n", max_gaps=0.1)
    with pytest.raises(ValueError, match="no column is left with as few gaps"):
        load(tmp_path, ">a\nA-\n>b\n-A\n", max_gaps=(0.5, 0.1))


def test_what_is_left_out_is_known(tmp_path):
    path = write(tmp_path, ">a\nACD\n>b\nAXB\n>c\nAXD\n>d\nAC.\n>e\nX-D\n")
    _, left_out = load_and_compare(path)
    assert load_alignment(write(tmp_path, STOCKHOLM)).names == ["one/1-4", "two"]
    letters = "letters outside the alphabet -ACDEFGHIKLMNPQRSTVWY (X B)"
    assert left_out == [f"3 of 5 sequences left out: {letters}"]
    assert load_and_compare(write(tmp_path, ">a\nACd\n>b\nAC.\n"))[1] == []


@pytest.mark.parametrize(
    "text, says",
    [
        (b"", "is empty"),
        (b"\n\n  \n", "it is empty"),
        (b"ACDE\nACDE\n", "begins neither with '>'"),
        (b"\xff\xfe>\x00a\x00", "text in UTF-16: save it in UTF-8"),
        (bz2.compress(b">a\nAC\n"), "compressed by bzip2"),
        (b">a\n>b\n", "titles, but no letters"),
        (b">a", "titles, but no letters"),
        (b">a\nACD\n>b\nACDE\n", r"sequence 2 \(b\) has 4 columns, the first one 3"),
        (b">a\nACD\n>b\n", r"sequence 2 \(b\) has 0 columns"),
        (b">a\nAC\x00DE\n", "line 2 holds the byte 0x00"),
        (b">a\nAC\xc3\xa9DE\n", "line 2 holds the byte 0xc3"),
        (b">a\nBJZ\n>b\nXXX\n", "letters outside it are X B J Z"),
        (b">a\nacde\n", "pass inserts='keep'"),
        (b"# STOCKHOLM 1.0\n//\n", "holds no sequences"),
        (b"# STOCKHOLM 1.0\na ACD\n", "without the line '//'"),
        (b"# STOCKHOLM 1.0\na ACD\na ACD\n//\n", "repeats a name"),
        (b"# STOCKHOLM 1.0\na\n//\n", "holds no letters"),
        (b"# STOCKHOLM 1.0\na ACD\nb AC\n//\n", "sequence 2"),
        (b"# STOCKHOLM 1.0\na ACD\n//\n# STOCKHOLM 1.0\n", "more than one alignment"),
        (gzip.compress(A2M.encode(), mtime=0)[:-9], "cannot be read"),
        (gzip.compress(A2M.encode(), mtime=0)[:9], "cannot be read"),
        (b"\x1f\x8b" + b"x" * 40, "cannot be read"),
        (gzip.compress(A2M.encode(), mtime=0)[:20] + b"\0" * 40, "cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_a_damaged_file_is_one_line_with_its_name(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=says) as caught:
        load_alignment(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("options, error, says", [
    ({"gaps": "none"}, ValueError, "gaps must be one of 'state', 'missing'"),
    ({"inserts": "none"}, ValueError, "inserts must be one of 'drop', 'keep'"),
    ({"outside": "none"}, ValueError, "outside must be one of 'drop', 'gap', 'missing'"),
    ({"alphabet": "AAC"}, ValueError, "at least two different"),
    ({"alphabet": "A"}, ValueError, "at least two different"),
    ({"alphabet": "Protein?"}, ValueError, "upper-case"),
    ({"alphabet": "A>"}, ValueError, "without '>'"),
    ({"alphabet": "A-."}, ValueError, "not with both"),
    ({"alphabet": 4}, TypeError, "alphabet must be a str"),
    ({"focus": 4}, TypeError, "focus must be a str"),
    ({"focus": ""}, ValueError, "no sequence's title begins"),
    ({"focus": "nobody"}, ValueError, "no sequence's title begins with focus='nobody'"),
    ({"focus": "f"}, ValueError, r"fits 2 sequences \(focus/3-7, fourth"),
    ({"max_bytes": 50}, ValueError, "larger than max_bytes=50"),
])  # fmt: skip
def test_options(tmp_path, options, error, says):
    with pytest.raises(error, match=says):
        load(tmp_path, A2M, **options)


@pytest.mark.parametrize(
    "rows", [("acd", "ac-", "-cd"), ("acd", "acd"), ("ac.", ".cd"), ("-cd", "a-d")]
)
def test_lower_case_alone_is_no_alignment(tmp_path, rows):
    path = tmp_path / "x.fasta"
    path.write_text("".join(f">{k}\n{row}\n" for k, row in enumerate(rows)))
    with pytest.raises(ValueError, match="all its letters are lower-case"):
        load_alignment(path)
    assert load_alignment(path, inserts="keep").X.shape == (len(rows), 3)


@pytest.mark.parametrize("name", ["x.fasta", "x.fasta.gz"])
def test_sequences_are_read_as_they_were_written(tmp_path, name):
    X = np.random.default_rng(0).integers(0, 21, (5, 30))
    write_fasta(tmp_path / name, X)
    np.testing.assert_array_equal(load_alignment(tmp_path / name).X, X)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_alignment(tmp_path / "x")
    with pytest.raises(ValueError, match="is a folder"):
        load_alignment(tmp_path)


@pytest.mark.parametrize("unit", [b"A", b"\0", b"A\n", b"A\n>\n", b">\nA\n", b" ", b"\n"])
def test_a_gzip_bomb_needs_no_more_memory_than_allowed(tmp_path, unit):
    """16 MiB in a file of some 30 KiB, of which one may be read."""
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as file:
        file.write(b">a\n")
        for _ in range(16):
            file.write(unit * (2**20 // len(unit)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"max_bytes=1048576|which is no letter"):
            load_alignment(path, max_bytes=2**20)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


sequence = st.text("ACDEXacdx-.", min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.lists(sequence, min_size=1, max_size=5), st.sampled_from(["drop", "keep"]))
def test_against_a_reader_letter_by_letter(tmp_path_factory, sequences, inserts):
    path = write(
        tmp_path_factory.getbasetemp(), "".join(f">{k}\n{s}\n" for k, s in enumerate(sequences))
    )
    rows = sequences
    ragged = len(set(map(len, rows))) > 1
    mixed = not ragged and any(
        0 < sum(map(str.islower, c)) < len(c) for c in zip(*rows, strict=True)
    )
    if inserts == "drop" and (ragged or (mixed and "." not in "".join(rows))):
        bare = ["".join(c for c in s if not (c.islower() or c == ".")) for s in rows]
        rows = bare if ragged or (len(set(map(len, bare))) == 1 and bare[0]) else rows
    aligned = len(set(map(len, rows))) == 1 and rows[0]
    columns = range(len(rows[0])) if aligned else ()
    if inserts == "drop":
        columns = [i for i in columns if not all(s[i].islower() or s[i] == "." for s in rows)]
        if any(map(str.islower, "".join(sequences))) and not any(
            c.isupper() for s in sequences for c in s
        ):
            columns = []
    states = ["".join(s[i].upper().replace(".", "-") for i in columns) for s in rows]
    kept = [k for k, s in enumerate(states) if "X" not in s]
    if not aligned or not columns or not kept:
        with pytest.raises(ValueError):
            load_alignment(path, inserts=inserts)
        return
    found = load_alignment(path, inserts=inserts)
    assert letters(found) == [states[k] for k in kept]
    assert found.rows.tolist() == kept and found.columns.tolist() == list(columns)


alignment_bytes = st.lists(
    st.sampled_from([
        b">", b"a", b"\n", b"# STOCKHOLM 1.0\n", b"//", b" ", b"ACD", b"acd", b"-", b".", b"\r",
        b"\x1f\x8b", b"\xff", b"\0", b">x\n", b"x AC\n", b"#=GC x\n", b"\xef\xbb\xbf",
        b"CLUSTAL W\n", b"x AC 2\n", b" ** \n", b"*", b"AC*\n", b"#A3M#\n", b";\n",
    ])
).map(b"".join)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    alignment_bytes | st.binary(max_size=200),
    st.sampled_from(["protein", "rna", None, "_*^"]),
    st.sampled_from([None, "x", "a"]),
    st.booleans(),
)
def test_any_bytes_are_an_alignment_or_an_error_of_one_line(
    tmp_path_factory, content, alphabet, focus, compress
):
    if compress:
        content = gzip.compress(content)
    path = write(tmp_path_factory.getbasetemp(), content)
    try:
        found = load_alignment(path, alphabet, focus)
    except ValueError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert found.X.shape == (len(found.rows), len(found.columns)) and found.X.size
        assert 0 <= found.X.min() and found.X.max() < len(found.alphabet)


FAMILIES = [
    ("DHFR.a2m", {"focus": "DYR_ECOLI"}, (3616, 159)),
    ("PF00014.fasta", {}, (4909, 53)),
    ("RF00162.fasta", {"alphabet": ".ACGU"}, (4757, 107)),
    ("RF00379.fasta", {"alphabet": "rna"}, (3827, 136)),
    ("MSA_RF00167.fa", {"alphabet": "rna"}, (2702, 102)),
    ("potts3.a2m", {"alphabet": "_*^"}, (500, 60)),
]


@pytest.mark.skipif("FASTMF_DATA" not in os.environ, reason="needs FASTMF_DATA")
@pytest.mark.parametrize("name, options, shape", FAMILIES, ids=lambda v: v if v is str else None)
def test_families_have_the_rows_that_their_sources_say(name, options, shape):
    path = Path(os.environ["FASTMF_DATA"]) / "sequences" / name
    if not path.exists():
        pytest.skip(f"FASTMF_DATA has no {name}")
    found = load_alignment(path, **options)
    assert found.X.shape == shape
    if name == "DHFR.a2m":  # plmc's weights are 0 for the rows that it leaves out
        weights = np.loadtxt(path.with_name("DHFR_weights_raw.txt"))
        np.testing.assert_array_equal(found.rows, np.flatnonzero(weights))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_said_to_be_one(tmp_path):
    os.mkfifo(tmp_path / "x.fasta")
    assert not is_alignment(tmp_path / "x.fasta")  # which would take what the pipe holds
    with pytest.raises(ValueError, match="is a pipe or device"):
        load_alignment(tmp_path / "x.fasta")
    with pytest.raises(ValueError, match="standard input"):
        load_alignment("-")
