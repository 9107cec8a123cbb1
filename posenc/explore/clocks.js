// Chapter 8. A query and a key, each turned by its own position: move both and the score stays, move one and it changes.
// data: { query: [x, y], key: [x, y], places, speed }
Explore.define("clocks", "Two clocks and their score", (box, data) => {
  const { draw, number, plot, BLUE, ORANGE, DARK_ORANGE, FAINT, INK, RED } = Explore;
  const SIZE = 240, MIDDLE = SIZE / 2;
  const length = (v) => Math.hypot(...v);
  const scale = (MIDDLE - 26) / Math.max(length(data.query), length(data.key));
  const turned = ([x, y], angle) => [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)];
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
  const scoreAt = (offset) => dot(data.query, turned(data.key, speed.value * offset));

  const face = box.svg(SIZE, SIZE, "Two hands of a clock: the query and the key, each turned by its position");
  const curve = box.svg(340, SIZE, "The score of this query and key, for every offset of their positions");
  draw("circle", { cx: MIDDLE, cy: MIDDLE, r: MIDDLE - 14, fill: "#fff", stroke: FAINT, "stroke-width": 2 }, face);
  const between = draw("path", { fill: "none", stroke: INK, "stroke-width": 1.5, "stroke-dasharray": "3 3" }, face);
  const hand = (ink, name) => {
    const line = draw("line", { x1: MIDDLE, y1: MIDDLE, stroke: ink, "stroke-width": 5, "stroke-linecap": "round" }, face);
    const words = draw("text", { "text-anchor": "middle" }, face, name);
    return (vector) => {
      const [x, y] = [MIDDLE + scale * vector[0], MIDDLE - scale * vector[1]];
      const [dx, dy] = [vector[0] / length(vector), -vector[1] / length(vector)];
      line.setAttribute("x2", x), line.setAttribute("y2", y);
      words.setAttribute("x", x + 22 * dx), words.setAttribute("y", y + 16 * dy + 4);
    };
  };
  const queryHand = hand(BLUE, "query"), keyHand = hand(ORANGE, "key");
  const most = length(data.query) * length(data.key);
  const axes = plot(curve, { x: [-data.places, data.places], y: [-most, most], xlabel: "key's position − query's position", ylabel: "score" });
  const line = axes.line([], { stroke: INK });
  const mark = draw("circle", { r: 6, fill: RED, stroke: "#fff", "stroke-width": 1.5 }, curve);

  const place = (label, name, value, ink) =>
    box.slider({ label, name, min: 0, max: data.places, value, colour: ink, change: () => update() });
  const query = place("Query's position", "query", 2, BLUE);
  const key = place("Key's position", "key", 5, DARK_ORANGE);
  const speed = box.slider({
    label: "Angle for each position", name: "speed", min: 0, max: 1, step: 0.01, value: data.speed,
    show: (value) => `${number(value)} rad`, change: () => update(),
  });
  const both = (step) => () => {
    if (Math.min(query.value, key.value) + step < 0 || Math.max(query.value, key.value) + step > data.places) {
      box.say(`One of them is at the end: positions go from 0 to ${data.places} here. The score stays `, ["score", number(scoreAt(key.value - query.value), 3)], ".");
      return;
    }
    query.set(query.value + step), key.set(key.value + step);
    update("Both moved by one. ");
  };
  box.buttons(["Both one back", "back", both(-1)], ["Both one on", "on", both(1)]);

  function update(before = "") {
    const q = turned(data.query, speed.value * query.value), k = turned(data.key, speed.value * key.value);
    const offset = key.value - query.value, score = dot(q, k);
    queryHand(q), keyHand(k);
    const [from, to] = [q, k].map((v) => [MIDDLE + (28 * v[0]) / length(v), MIDDLE - (28 * v[1]) / length(v)]);
    const cross = q[0] * k[1] - q[1] * k[0];
    between.setAttribute("d", `M${from.join(" ")}A28 28 0 0 ${cross > 0 ? 0 : 1} ${to.join(" ")}`);
    const points = [];
    for (let at = -data.places; at <= data.places; at += 0.25) points.push([at, scoreAt(at)]);
    line.setAttribute("d", axes.path(points));
    mark.setAttribute("cx", axes.x(offset)), mark.setAttribute("cy", axes.y(score));
    box.say(before, "Offset ", ["offset", number(offset, 0)], ", score ", ["score", number(score, 3)], ". The score is a function of the offset: the dot moves along the curve only if you move one hand alone.");
  }
  update();
});
