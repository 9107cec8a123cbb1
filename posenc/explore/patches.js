// Chapter 10. A grid of patches: take one, and see how alike its place and every other place are.
// data: { side, start: [row, column], maps: { name: { words, what, values: [patch][other patch] } } }
Explore.define("patches", "Take a patch: which places are like its place?", (box, data) => {
  const { make, draw, number, colour, plot, BLUE, INK, PAPER, RED } = Explore;
  const { side } = data, count = side * side, farthest = 2 * (side - 1);
  const rowOf = (patch) => Math.floor(patch / side), columnOf = (patch) => patch % side;
  const steps = (a, b) => Math.abs(rowOf(a) - rowOf(b)) + Math.abs(columnOf(a) - columnOf(b));
  const named = (patch) => `row ${rowOf(patch)}, column ${columnOf(patch)}`;
  let taken = data.start[0] * side + data.start[1];

  const grid = make("div", { role: "group", "aria-label": "Patches; arrow keys move" }, box.plots);
  grid.style.cssText = `display:grid;grid-template-columns:repeat(${side},1fr);gap:2px;max-width:23rem;margin:0 auto;touch-action:manipulation`;
  const cells = Array.from({ length: count }, (_, patch) => {
    const cell = make("button", { type: "button", "data-name": `patch-${patch}` }, grid);
    cell.style.cssText = "min-width:0;min-height:2.4rem;padding:0;border-radius:3px;font-size:.8rem;font-variant-numeric:tabular-nums";
    cell.addEventListener("click", () => take(patch));
    return cell;
  });
  grid.addEventListener("keydown", (event) => {
    const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const row = rowOf(taken) + down, column = columnOf(taken) + across;
    if (!(down || across)) return;
    event.preventDefault();
    if (Math.min(row, column) < 0 || Math.max(row, column) >= side) return;
    take(row * side + column);
    cells[taken].focus();
  });

  const falls = box.svg(340, 230, "Mean likeness against the number of steps from the patch, each patch a dot");
  const axes = plot(falls, { x: [0, farthest], y: [-1, 1], xlabel: "steps from the patch", ylabel: "likeness" });
  axes.line([[0, 0], [farthest, 0]], { stroke: INK, "stroke-width": 1 });
  const dots = cells.map(() => draw("circle", { r: 3.5, fill: BLUE, opacity: 0.5 }, axes.area));
  const line = axes.line([], { stroke: RED });

  const options = Object.entries(data.maps).map(([name, { words }]) => [name, words]);
  const map = box.choice({ label: "Places", name: "map", options, value: options[0][0], change: () => update() });

  function take(patch) {
    taken = patch;
    update();
  }
  const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;

  function update() {
    const { values, what } = data.maps[map.value], row = values[taken];
    cells.forEach((cell, patch) => {
      const fill = colour(row[patch], 1, true), mine = patch === taken;
      cell.textContent = number(row[patch]);
      cell.tabIndex = mine ? 0 : -1;
      cell.setAttribute("aria-pressed", mine);
      cell.setAttribute("aria-label", `${named(patch)}: ${number(row[patch])}`);
      cell.style.background = fill;
      cell.style.color = isDark(fill) ? "#fff" : "#000";
      cell.style.border = mine ? `3px solid ${INK}` : `1px solid ${PAPER}`;
      dots[patch].setAttribute("cx", axes.x(steps(taken, patch)));
      dots[patch].setAttribute("cy", axes.y(Math.max(-1, Math.min(1, row[patch]))));
    });
    const at = (wanted) => row.filter((_, patch) => wanted(steps(taken, patch)));
    const points = [];
    for (let far = 0; far <= farthest; far++) {
      const there = at((s) => s === far);
      if (there.length) points.push([far, mean(there)]);
    }
    line.setAttribute("d", axes.path(points));
    const others = at((s) => s > 1);
    box.say(
      `The patch at ${named(taken)}. Its neighbours: `, ["near", number(mean(at((s) => s === 1)))], " in the mean. All others: ",
      ["far", number(mean(others))], `. ${what}`,
    );
  }

  /** White stands out more than black where the colour's luminance is below 0.179 (WCAG's formula). */
  function isDark(fill) {
    const [r, g, b] = fill.match(/\d+/g).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.179;
  }
  update();
});
