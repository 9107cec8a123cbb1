// Chapter 1. Three tiles go through one self-attention layer. Move a tile, and its output goes along, number for number.
// Under a causal mask, or with positions added, the numbers change.
// data: { tiles: { D: vector, … }, queries, keys, values, output: matrices as in nn.Linear, places: vectors, limit }
Explore.define("tiles", "One layer reads three tiles", (box, data) => {
  const { draw, number, colour, BLUE, ORANGE, GREEN, INK } = Explore;
  const WIDTH = 364, LEFT = 34, STEP = 110, TOP = 118, CELL = 23;
  const letters = Object.keys(data.tiles), features = [...data.places[0].keys()], inks = [BLUE, ORANGE, GREEN];
  const dot = (a, b) => a.reduce((sum, each, k) => sum + each * b[k], 0);
  const apply = (matrix, x) => matrix.map((row) => dot(row, x));

  /** Self-attention on the tiles in this order. By letter: its output, and its weights on each letter. */
  function layer(order, mode) {
    const x = order.map((letter, place) => data.tiles[letter].map((v, k) => v + (mode === "places" ? data.places[place][k] : 0)));
    const [queries, keys, values] = [data.queries, data.keys, data.values].map((matrix) => x.map((row) => apply(matrix, row)));
    const found = {};
    order.forEach((letter, i) => {
      const seen = mode === "causal" ? i + 1 : order.length; // under the mask: itself and what lies to its left
      const grown = keys.map((key, j) => (j < seen ? Math.exp(dot(queries[i], key) / Math.sqrt(features.length)) : 0));
      const sum = grown.reduce((a, b) => a + b);
      const mixed = features.map((k) => grown.reduce((total, each, j) => total + (each / sum) * values[j][k], 0));
      found[letter] = { output: apply(data.output, mixed), weights: Object.fromEntries(order.map((other, j) => [other, grown[j] / sum])) };
    });
    return found;
  }

  const picture = box.svg(WIDTH, 252, "Three tiles in their order; below each its output, four numbers; lines between them as thick as the attention weights");
  picture.style.cursor = "grab";
  picture.style.userSelect = "none";
  const middle = (place) => LEFT + STEP * (place + 0.5);
  draw("text", { x: 0, y: 36 }, picture, "in");
  draw("text", { x: 0, y: TOP + 2 * CELL + 4 }, picture, "out");
  letters.forEach((_, place) => draw("text", { x: middle(place), y: 248, "text-anchor": "middle" }, picture, `place ${place + 1}`));
  const lines = letters.flatMap((key, k) => letters.map((query) => {
    const path = draw("path", { fill: "none", stroke: inks[k], "stroke-opacity": 0.6 }, picture);
    return { key, query, path };
  }));
  const parts = Object.fromEntries(letters.map((letter, k) => {
    const group = draw("g", {}, picture);
    draw("rect", { x: -23, y: 8, width: 46, height: 46, rx: 7, fill: "#fff", stroke: inks[k], "stroke-width": 4 }, group);
    draw("text", { y: 39, "text-anchor": "middle", style: "font-size: 24px; font-weight: 700" }, group, letter);
    const cells = features.map((f) => [
      draw("rect", { x: -42, y: TOP + CELL * f, width: 84, height: CELL - 2, rx: 3, stroke: INK }, group),
      draw("text", { y: TOP + CELL * f + 15.5, "text-anchor": "middle", "data-name": `${letter}-${f}` }, group),
    ]);
    const verdict = draw("text", { y: TOP + 4 * CELL + 14, "text-anchor": "middle", "data-name": `${letter}-verdict` }, group);
    return [letter, { group, cells, verdict }];
  }));

  const DEPENDS = {
    causal: "under the mask a tile's output depends on which tiles stand before it, not on its place",
    places: "with positions a tile's output depends on the places of all tiles",
  };
  let order = [...letters], now = null;
  const swap = (a) => () => { [order[a], order[a + 1]] = [order[a + 1], order[a]]; update(); };
  function shuffle() {
    const before = order.join("");
    while (order.join("") === before) order = order.map((letter) => [Math.random(), letter]).sort(([a], [b]) => a - b).map(([, letter]) => letter);
    update();
  }
  const [one] = box.buttons(["Swap 1 and 2", "swap-12", swap(0)], ["Swap 2 and 3", "swap-23", swap(1)], ["Shuffle", "shuffle", shuffle]);
  one.parentElement.style.gridColumn = "1 / -1";
  const mode = box.choice({
    label: "The layer gets", name: "mode", value: "none", change: () => update(),
    options: [["none", "the tiles alone"], ["causal", "+ a causal mask"], ["places", "+ positions"]],
  });

  // By hand: a tile goes to the place where the finger is.
  let held = null;
  function placeOf(event) {
    const { a: scale, e: start } = picture.getScreenCTM();
    return Math.min(letters.length - 1, Math.max(0, Math.floor(((event.clientX - start) / scale - LEFT) / STEP)));
  }
  picture.addEventListener("pointerdown", (event) => {
    held = order[placeOf(event)];
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (held === null || order[placeOf(event)] === held) return;
    order = order.filter((letter) => letter !== held);
    order.splice(placeOf(event), 0, held);
    update();
  });
  for (const end of ["pointerup", "pointercancel"]) picture.addEventListener(end, () => { held = null; });

  // Tiles glide to their places, and the lines follow; at once where a reader wants no movement.
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const at = Object.fromEntries(letters.map((letter, place) => [letter, middle(place)]));
  let frame = 0;
  function glide() {
    let moving = false;
    order.forEach((letter, place) => {
      const left = middle(place) - at[letter];
      const there = still.matches || Math.abs(left) < 0.5;
      at[letter] += there ? left : left / 5;
      moving ||= !there;
      parts[letter].group.setAttribute("transform", `translate(${at[letter].toFixed(1)} 0)`);
    });
    for (const { key, query, path } of lines) {
      path.setAttribute("d", `M${at[key].toFixed(1)} 57C${at[key].toFixed(1)} 92 ${at[query].toFixed(1)} 82 ${at[query].toFixed(1)} ${TOP - 3}`);
      path.setAttribute("stroke-width", (14 * now[query].weights[key]).toFixed(2));
    }
    cancelAnimationFrame(frame);
    if (moving) frame = requestAnimationFrame(glide);
  }

  function update() {
    now = layer(order, mode.value);
    const first = layer(letters, mode.value); // the same layer on the first order
    const changes = letters.map((letter) => Math.max(...features.map((f) => Math.abs(now[letter].output[f] - first[letter].output[f]))));
    letters.forEach((letter, k) => {
      now[letter].output.forEach((value, f) => {
        const changed = Math.abs(value - first[letter].output[f]) >= 0.005;
        const [rect, text] = parts[letter].cells[f];
        rect.setAttribute("fill", colour(value, data.limit, true));
        rect.setAttribute("stroke-width", changed ? 2 : 0);
        text.setAttribute("font-weight", changed ? 700 : 400);
        text.textContent = number(value);
      });
      parts[letter].verdict.textContent = changes[k] < 0.005 ? "same" : "changed";
    });
    const largest = ["largest", number(Math.max(...changes), 3)];
    const moved = order.filter((letter) => changes[letters.indexOf(letter)] >= 0.005), names = letters.join(" ");
    if (order.join() === letters.join()) {
      box.say(`${names} is the order to compare with: largest change of an output `, largest, ". Now move a tile, by a button, or drag it.");
    } else if (moved.length === 0) {
      box.say(`${order.join(" ")} against ${names}: largest change of an output `, largest, ". Every tile kept its numbers. They only stand in another place.");
    } else {
      box.say(`${order.join(" ")} against ${names}: largest change of an output `, largest, `. Framed numbers are new: ${DEPENDS[mode.value]}. Changed: ${moved.join(", ")}.`);
    }
    glide();
  }
  update();
});
