"""Reading the tables that notebooks show."""

from xml.etree import ElementTree


def shown(result):
    """Title, and the rows of all tables, of an object's HTML, which must be well formed."""
    root = ElementTree.fromstring(result._repr_html_())
    rows = ["".join(cell.itertext()) for cell in root.find("strong").iter()]
    tables = [[tuple("".join(c.itertext()) for c in row) for row in table.iter("tr")]
              for table in root.iter("table")]  # fmt: skip
    return rows[0], tables
