// A click on a column's name sorts the page's first table by it; another click turns the order round.

document.addEventListener("DOMContentLoaded", () => {
  const table = document.querySelector(".bd-article table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const asNumber = (text) => (/^\d[\d,]*/.test(text) ? Number(text.match(/^\d[\d,]*/)[0].replaceAll(",", "")) : NaN);

  function compare(a, b) {
    const [x, y] = [asNumber(a), asNumber(b)];
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || a.localeCompare(b);
    return x - y || a.localeCompare(b);
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sorts";
    button.append(...(head.querySelector("p") ?? head).childNodes);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.ariaSort === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent.trim();
      const rows = [...body.rows].sort((a, b) => compare(text(a), text(b)));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
});
