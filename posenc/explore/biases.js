// Chapter 7. One family of biases: what the score gets at each distance, and what that leaves of the weight.
// data: { slopes: [ALiBi's, one a head], shown, longest, c, threshold, height: FIRE's, here f(x) = height x }
Explore.define("biases", "One family: what a bias leaves of a key", (box, data) => {
  const { draw, number, plot, BLUE, DARK_ORANGE, ORANGE, INK, RED } = Explore;
  const LOWEST = -9, last = data.shown - 1;
  const view = (label) => box.svg(340, 190, label);
  const above = view("The bias of a key, against its distance from the query");
  const below = view("The share of the weight that the nearest keys hold together, against their distance");
  const x = [0, data.shown];
  const bias = plot(above, { x, y: [LOWEST, 0.6], xlabel: "distance of the key", ylabel: "bias" });
  const share = plot(below, { x, y: [0, 1], xlabel: "up to this distance", ylabel: "share of the weight" });
  const band = draw("rect", { fill: ORANGE, opacity: 0.3 }, bias.area);
  const pictures = [bias, share].map((axes) => ({
    axes,
    upright: draw("line", { y1: axes.y(axes === bias ? LOWEST : 0), y2: axes.y(axes === bias ? 0.6 : 1), stroke: RED, "stroke-dasharray": "4 3" }, axes.area),
    line: axes.line([], { stroke: axes === bias ? BLUE : INK }),
    dot: draw("circle", { r: 6, fill: RED, stroke: "#fff", "stroke-width": 1.5 }, axes.area),
  }));

  // A start for each bucket, in whole numbers: t^steps exact^k >= limit^k exact^steps, as in the chapter.
  function bucketStarts(buckets, limit) {
    const exact = Math.floor(buckets / 2), steps = buckets - exact;
    const power = (base, times) => BigInt(base) ** BigInt(times);
    const starts = [...Array(exact).keys()];
    for (let k = 0, t = exact; k < steps; k++) {
      while (power(t, steps) * power(exact, k) < power(limit, k) * power(exact, steps)) t++;
      starts.push(t);
    }
    return starts;
  }
  let starts = [];
  const bucketOf = (t) => starts.findLastIndex((start) => start <= t);

  /** FIRE with the simplest network: the distance as a share of what a query at this position can see. */
  const fireFrom = (query, t) => (data.height * Math.log1p(data.c * t)) / Math.log1p(data.c * Math.max(data.threshold, query));

  const FORMS = {
    alibi: ["ALiBi", (t) => -data.slopes[head.value - 1] * t],
    t5: ["T5", (t) => -Math.log1p(starts[bucketOf(t)])],
    kerple: ["KERPLE", (t) => -steep.value * Math.log1p(t)],
    gaussian: ["Gaussian", (t) => -(t ** 2) / (2 * wide.value ** 2)],
    window: ["window", (t) => (t < cut.value ? 0 : -Infinity)],
    fire: ["FIRE", (t) => fireFrom(tokens.value - 1, t)],
  };
  const options = Object.entries(FORMS).map(([name, [words]]) => [name, words]);
  const form = box.choice({ label: "Bias", name: "form", options, value: "alibi", change: () => update() });
  const slider = (label, name, min, max, value, more = {}) =>
    box.slider({ label, name, min, max, value, change: () => update(), ...more });
  const head = slider("Head, of 8", "head", 1, 8, 4, { show: (k) => `${k}: slope 1/${1 / data.slopes[k - 1]}` });
  const buckets = slider("Buckets (keys to the left only)", "buckets", 4, 32, 16);
  const limit = slider("Limit", "limit", 20, 190, 128);
  const steep = slider("Steepness a, with b = 1", "steep", 0.5, 4, 1, { step: 0.25, show: (a) => number(a) });
  const wide = slider("Width", "wide", 4, 80, 24);
  const cut = slider("Window", "cut", 1, data.shown, 60, { show: (w) => (w === 1 ? "1 key" : `${w} keys`) });
  const distance = slider("How far back is the key?", "distance", 0, last, 50, { colour: RED });
  const tokens = slider("Keys in the text", "tokens", data.shown, data.longest, data.shown, { step: 100, colour: DARK_ORANGE });
  const OWN = { alibi: [head], t5: [buckets, limit], kerple: [steep], gaussian: [wide], window: [cut], fire: [] };

  const weightsOf = (n) => {
    const raw = Array.from({ length: n }, (_, t) => Math.exp(FORMS[form.value][1](t)));
    const total = raw.reduce((sum, w) => sum + w, 0);
    return raw.map((w) => w / total);
  };
  /** The curve of the bias: to the bottom of the picture and no further, T5's in steps. */
  function curve(at) {
    const points = [];
    for (let t = 0; t <= last; t++) {
      const value = Math.max(LOWEST, at(t));
      points.push([t, value]);
      if (form.value === "t5") points.push([t + 1, value]);
      if (value === LOWEST) break;
    }
    return points;
  }

  function update() {
    for (const [name, sliders] of Object.entries(OWN)) {
      for (const each of sliders) each.input.parentElement.style.display = name === form.value ? "" : "none";
    }
    if (form.value === "t5") starts = bucketStarts(buckets.value, limit.value);
    const at = FORMS[form.value][1], t = distance.value, weights = weightsOf(tokens.value);
    const together = [];
    for (const w of weights) together.push((together.at(-1) ?? 0) + w);
    const shown = [Math.max(LOWEST, at(t)), together[t]];
    pictures.forEach(({ axes, upright, line, dot }, k) => {
      line.setAttribute("d", axes.path(k ? together.slice(0, data.shown).map((y, d) => [d, y]) : curve(at)));
      dot.setAttribute("cx", axes.x(t)), dot.setAttribute("cy", axes.y(shown[k]));
      upright.setAttribute("x1", axes.x(t)), upright.setAttribute("x2", axes.x(t));
    });
    const keeps = (all) => (at(t) === -Infinity ? "0" : all[t] < 0.00005 ? "< 0.0001" : number(all[t], 4));
    const parts = ["A key ", ["back", number(t, 0)], " back gets the bias ", ["bias", at(t) === -Infinity ? "−∞" : number(at(t), 3)]];
    parts.push(". If all keys are equally good, it keeps ", ["weight", keeps(weights)], " of the weight");
    if (tokens.value > data.shown) parts.push(` (among ${data.shown} keys: `, ["before", keeps(weightsOf(data.shown))], ")");
    parts.push(". All keys up to it hold ", ["share", number(together[t], 3)], " together; the nearest ");
    parts.push(["holding", number(together.filter((sum) => sum < 0.99).length + 1, 0)], " hold 99 %. ");
    box.say(...parts, ...remark(t));
  }

  function remark(t) {
    band.setAttribute("width", 0);
    if (form.value === "fire") {
      const [query, other] = [tokens.value - 1, tokens.value === data.shown ? data.longest - 1 : data.shown - 1];
      return [`The query stands at ${query}. If it stood at ${other}, the bias of this key would be `, ["elsewhere", number(fireFrom(other, t), 3)], "."];
    }
    if (form.value === "window") return [t < cut.value ? "Inside the window all are equal." : "Outside the window nothing is left."];
    if (form.value !== "t5") return [];
    const bucket = bucketOf(t), from = starts[bucket], next = starts[bucket + 1];
    const [left, right] = [bias.x(from), bias.x(Math.min(next ?? data.shown, data.shown))];
    for (const [name, value] of Object.entries({ x: left, width: right - left, y: bias.y(0.6), height: bias.y(LOWEST) - bias.y(0.6) })) {
      band.setAttribute(name, value);
    }
    if (next === from + 1) return ["It has a bucket of its own, number ", ["bucket", number(bucket, 0)], "."];
    const range = next === undefined ? [["from", number(from, 0)], " and more back"] : [["from", number(from, 0)], " to ", ["to", number(next - 1, 0)], " back"];
    return ["It is in bucket ", ["bucket", number(bucket, 0)], ", with all keys ", ...range, ": one number for them all."];
  }
  update();
});
