import csv


def test_mutations_are_of_texts_and_tests_that_exist(load):
    script = load("mutations")
    with (script.ROOT / "scripts" / "mutations.csv").open(newline="", encoding="utf-8") as file:
        mutations = list(csv.DictReader(file))
    for line in mutations:
        assert line["text"] in (script.ROOT / "fastmf" / line["file"]).read_text(encoding="utf-8")
        assert line["changed"] != line["text"]
        path, _, name = line["tests"].partition("::")
        path = script.ROOT / "tests" / path
        assert path.exists() and (not name or f"def {name}(" in path.read_text(encoding="utf-8"))
    assert len({line["term"] for line in mutations}) == len(mutations)
