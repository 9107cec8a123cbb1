// Chapter 4. The table of sinusoids for a width and a base; two of its rows, and their dot product, which sees the offset alone.
// data: { rows, farthest: the largest offset, search: how far to look for a rise, width, base: exponents of 2 and 10, place, offset }
Explore.define("sinusoid", "A table of waves, and what its rows know of each other", (box, data) => {
  const { draw, number, colour, plot, BLUE, DARK_ORANGE, INK, RED } = Explore;
  const LEFT = 34, TOP = 8, WIDE = 300, HIGH = 144, STRIP = 15;
  const shades = Array.from({ length: 201 }, (_, k) => colour(k / 100 - 1, 1, true).match(/\d+/g).map(Number)); // −1 to 1
  const whole = (value) => Math.round(value).toLocaleString("en");

  const table = box.svg(LEFT + WIDE + 6, 238, "Heat map of the table: places down, first all sines and then all cosines across. Below it two of its rows, enlarged");
  const graph = box.svg(340, 214, "The dot product of two rows over its largest value, for every offset");
  const picture = (y, height) =>
    draw("image", { x: LEFT, y, width: WIDE, height, preserveAspectRatio: "none", style: "image-rendering: pixelated" }, table);
  const all = picture(TOP, HIGH);
  for (const [text, at] of [["sines, fast to slow", 0.25], ["cosines", 0.75]])
    draw("text", { x: LEFT + WIDE * at, y: TOP + HIGH + 16, "text-anchor": "middle" }, table, text);
  draw("text", { x: LEFT + WIDE / 2, y: 234, "text-anchor": "middle" }, table, "blue −1, white 0, red 1");
  draw("line", { x1: LEFT + WIDE / 2, x2: LEFT + WIDE / 2, y1: TOP, y2: TOP + HIGH, stroke: INK }, table);
  const marks = [["i", BLUE, 175], ["j", DARK_ORANGE, 198]].map(([name, ink, y]) => {
    const strip = picture(y, STRIP);
    draw("rect", { x: LEFT, y, width: WIDE, height: STRIP, fill: "none", stroke: ink, "stroke-width": 2 }, table);
    draw("text", { x: 4, y: y + 12 }, table, `row ${name}`).setAttribute("style", "font-size: 11px");
    const line = draw("line", { x1: LEFT - 6, x2: LEFT + WIDE, stroke: ink, "stroke-width": 2 }, table);
    return { strip, line, words: draw("text", { x: LEFT - 10, "text-anchor": "end" }, table, name) };
  });
  const axes = plot(graph, { x: [0, data.farthest], y: [-1, 1], xlabel: "offset j − i", ylabel: "p·p / (d/2)", bottom: 44 });
  const curve = axes.line([], { stroke: INK });
  const dotMark = draw("circle", { r: 6, fill: RED, stroke: "#fff", "stroke-width": 1.5 }, graph);

  const slider = (label, name, min, max, step, value, show, ink) =>
    box.slider({ label, name, min, max, step, value, show, colour: ink, change: () => update() });
  const width = slider("Width d", "width", 2, 10, 1, data.width, (value) => String(2 ** value));
  const base = slider("Base", "base", 0.5, 6, 0.5, data.base, (value) => (10 ** value).toLocaleString("en", { maximumFractionDigits: 2 }));
  const place = slider("Place i", "place", 0, data.rows - 1 - data.farthest, 1, data.place, String, BLUE);
  const offset = slider("Offset j − i", "offset", 0, data.farthest, 1, data.offset, String, DARK_ORANGE);

  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d");
  /** Rows of numbers from −1 to 1 as a picture, one dot a number. */
  function paint(rows) {
    [canvas.width, canvas.height] = [rows[0].length, rows.length];
    const image = pen.createImageData(canvas.width, canvas.height);
    rows.flat().forEach((value, k) => image.data.set([...shades[Math.round(100 * value) + 100], 255], 4 * k));
    pen.putImageData(image, 0, 0);
    return canvas.toDataURL();
  }

  const row = (speeds, i) => [...speeds.map((speed) => Math.sin(speed * i)), ...speeds.map((speed) => Math.cos(speed * i))];
  const similarity = (speeds, far) => speeds.reduce((sum, speed) => sum + Math.cos(speed * far), 0);
  function firstRise(speeds) {
    let before = speeds.length;
    for (let far = 1; far <= data.search; far++) {
      const now = similarity(speeds, far);
      if (now > before) return far;
      before = now;
    }
    return null;
  }

  let shown = ""; // the width and base that are drawn: only the marks move when a place does
  let rows = [], rise = null, slowest = 0;
  function redraw() {
    const d = 2 ** width.value;
    const speeds = Array.from({ length: d / 2 }, (_, k) => (10 ** base.value) ** ((-2 * k) / d));
    rows = Array.from({ length: data.rows }, (_, i) => row(speeds, i));
    all.setAttribute("href", paint(rows));
    const points = Array.from({ length: data.farthest + 1 }, (_, far) => [far, similarity(speeds, far) / speeds.length]);
    curve.setAttribute("d", axes.path(points));
    [rise, slowest] = [firstRise(speeds), (2 * Math.PI) / speeds.at(-1)];
  }

  function update() {
    const wanted = `${width.value} ${base.value}`;
    if (wanted !== shown) redraw();
    shown = wanted;
    const chosen = [place.value, place.value + offset.value];
    chosen.forEach((i, k) => {
      const { strip, line, words } = marks[k], y = TOP + (HIGH * (i + 0.5)) / data.rows;
      strip.setAttribute("href", paint([rows[i]]));
      line.setAttribute("y1", y), line.setAttribute("y2", y);
      words.setAttribute("y", y + (k ? 12 : 0));
    });
    const [p, q] = chosen.map((i) => rows[i]), most = p.length / 2;
    const dot = p.reduce((sum, value, k) => sum + value * q[k], 0);
    dotMark.setAttribute("cx", axes.x(offset.value)), dotMark.setAttribute("cy", axes.y(dot / most));
    box.say(
      "Rows ", ["i", String(chosen[0])], " and ", ["j", String(chosen[1])], ": dot product ", ["dot", number(dot, 3)],
      " of at most ", ["most", String(most)], `. ${offset.value ? "Move i, and it stays." : "A row with itself: always d/2."} Away from offset 0 it `,
      ...(rise ? ["falls, then first rises at offset ", ["rise", String(rise)], rise > data.farthest ? ", beyond the plot" : ""] : [`does not rise within ${whole(data.search)} places`]),
      ". The slowest pair needs ", ["slowest", whole(slowest)], " steps for a turn.",
    );
  }
  update();
});
