"""Tables that can be sorted by clicking a heading: the one script of our pages.

Without it the table is whole, in the order in which it was written.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

#: The class of a table that the script sorts. Cells may have `data-value`, a number to sort by;
#: without one they are sorted as text where no cell of the column has a number, and come last
#: where others do.
SORTABLE = "sortable"

SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  table.classList.add("live");
  heads.forEach((head, column) => {
    const number = (row) => {
      const value = row.cells[column].dataset.value;
      return value === undefined ? NaN : Number(value);
    };
    const sort = () => {
      const rows = [...body.rows];
      const numeric = rows.some((row) => !Number.isNaN(number(row)));
      const now = head.getAttribute("aria-sort");
      const down = numeric ? now !== "descending" : now === "ascending";
      const sign = down ? -1 : 1;
      const text = (row) => row.cells[column].textContent;
      rows.sort((one, other) => {
        if (!numeric) return sign * text(one).localeCompare(text(other));
        const [a, b] = [number(one), number(other)];
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return sign * (a - b);
      });
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort();
      }
    });
  });
}
"""


def script_digest() -> str:
    """What a page's security policy allows to run: this script, and nothing else."""
    return f"'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"
