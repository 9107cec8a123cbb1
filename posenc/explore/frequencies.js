// Chapter 9. One circle a rotary pair: the angles that training showed, and the angles of a longer text under each scheme.
// data: { pairs, trained, scale, base, yarn: [slow, fast], llama: [slow, fast] turns at the ends of the two ramps }
Explore.define("frequencies", "Eight pairs in a longer text", (box, data) => {
  const { make, draw, number, BLUE, ORANGE, DARK_ORANGE, RED, FAINT } = Explore;
  const TURN = 2 * Math.PI, SIZE = 120, MIDDLE = SIZE / 2;
  const short = (value) => number(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);

  /** Frequencies in, frequencies out; as in posenc/contexts.py. */
  const byParts = ([slow, fast]) => (plain, scale, trained) => plain.map((speed) => {
    const kept = Math.min(1, Math.max(0, ((trained * speed) / TURN - slow) / (fast - slow)));
    return kept * speed + ((1 - kept) * speed) / scale;
  });
  const schemes = {
    plain: (plain) => plain,
    pi: (plain, scale) => plain.map((speed) => speed / scale),
    ntk: (plain, scale) => plain.map((speed, k) => speed * scale ** (-k / (plain.length - 1))),
    yarn: byParts(data.yarn),
    llama: byParts(data.llama),
  };

  const legend = make("p", { style: "margin: 0; flex-basis: 100%; font-size: 13px" }, box.plots);
  make("strong", {}, legend, "Look for thick red: angles that training never showed.");
  legend.append(" Outer ring: training; inner ring: the longer text. Numbers: turns in training → in the longer text; ÷ slowed by; " +
    "▲ the angle furthest from all that training showed.");
  // A small card for each pair: its circle, its turns in training and in the longer text, and a verdict.
  const grid = make("div", { style: "display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: .6rem .4rem; text-align: center; font-size: 12px; line-height: 1.3" }, box.plots);
  const cards = Array.from({ length: data.pairs }, (_, k) => {
    const card = make("div", {}, grid);
    const svg = draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": `Angles of pair ${k}`, style: "max-height: 5.5rem" }, card);
    draw("circle", { cx: MIDDLE, cy: MIDDLE, r: 43, fill: "none", stroke: FAINT }, svg);
    const ring = (radius, ink, thick) => ({ radius, path: draw("path", { fill: "none", stroke: ink, "stroke-width": thick, "stroke-linecap": "round" }, svg) });
    const rings = { seen: ring(53, BLUE, 6), met: ring(34, ORANGE, 5), fresh: ring(31, RED, 9) };
    make("div", { style: "font-weight: 600" }, card, `pair ${k}`);
    const line = (name) => make("div", { "data-name": `${name}-${k}`, style: "font-variant-numeric: tabular-nums; white-space: nowrap" }, card);
    return { rings, turns: line("turns"), slowed: line("slowed"), verdict: line("verdict") };
  });

  const scheme = box.choice({
    label: "How the pairs are slowed", name: "scheme", value: "plain", change: () => update(),
    options: [["plain", "not at all"], ["pi", "PI"], ["ntk", "NTK"], ["yarn", `YaRN, ramp ${data.yarn.join(" to ")}`], ["llama", `Llama 3.1, ramp ${data.llama.join(" to ")}`]],
  });
  const slider = (label, name, min, max, step, value, show, ink) =>
    box.slider({ label, name, min, max, step, value, show, colour: ink, change: () => update() });
  const trained = slider("Trained length L", "trained", 4, 8, 1, Math.log2(data.trained), (value) => String(2 ** value), BLUE);
  const scale = slider("Longer by a factor s", "scale", 1, 8, 0.5, data.scale, String, DARK_ORANGE);
  const base = slider("Base", "base", 0.5, 6, 0.5, Math.log10(data.base), (value) => (10 ** value).toLocaleString("en", { maximumFractionDigits: 2 }));

  /** How far the angle of each offset below `length` is from the nearest one that training showed. */
  function distances(speed, before, length, seen) {
    const shown = Array.from({ length: seen }, (_, t) => (t * before) % TURN).sort((a, b) => a - b);
    return Array.from({ length }, (_, m) => {
      const angle = (m * speed) % TURN;
      let low = 0, high = shown.length;
      while (low < high) {
        const between = (low + high) >> 1;
        if (shown[between] < angle) low = between + 1;
        else high = between;
      }
      const gaps = [shown[low % seen], shown.at(low - 1)].map((other) => Math.abs(angle - other));
      return Math.min(...gaps.map((gap) => Math.min(gap, TURN - gap)));
    });
  }

  /** Dots at these angles, one a degree at most. */
  function dots({ radius, path }, angles) {
    const degrees = new Set(angles.map((angle) => Math.round((angle * 360) / TURN) % 360));
    path.setAttribute("d", [...degrees].map((degree) => {
      const at = (degree * TURN) / 360;
      return `M${(MIDDLE + radius * Math.cos(at)).toFixed(1)} ${(MIDDLE - radius * Math.sin(at)).toFixed(1)}h0`;
    }).join(""));
  }

  function update() {
    const length = 2 ** trained.value, longer = Math.round(length * scale.value);
    const plain = Array.from({ length: data.pairs }, (_, k) => (10 ** base.value) ** (-k / data.pairs));
    const changed = schemes[scheme.value](plain, scale.value, length);
    const fresh = [];
    cards.forEach(({ rings, turns, slowed, verdict }, k) => {
      const gaps = distances(changed[k], plain[k], longer, length);
      const isNew = gaps.map((gap) => gap > plain[k] * (1 + 1e-9)); // more than one step of this pair from all that was shown
      const angles = gaps.map((_, m) => m * changed[k]);
      dots(rings.seen, Array.from({ length }, (_, t) => t * plain[k]));
      dots(rings.met, angles.filter((_, m) => !isNew[m]));
      dots(rings.fresh, angles.filter((_, m) => isNew[m]));
      if (isNew.includes(true)) fresh.push(k);
      turns.textContent = `${short((length * plain[k]) / TURN)} → ${short((longer * changed[k]) / TURN)}`;
      slowed.textContent = `÷ ${number(plain[k] / changed[k])}`;
      verdict.textContent = isNew.includes(true) ? `▲ ${number(Math.max(...gaps))} rad` : "seen";
      verdict.style.fontWeight = isNew.includes(true) ? 600 : 400;
    });
    const round = plain.filter((speed) => length * speed >= TURN).length;
    const price = plain[0] / changed[0];
    box.say(
      `Trained on ${length}, read to `, ["longer", String(longer)], ": ", ["round", String(round)], ` of ${data.pairs} pairs got round in training, and `,
      ["fresh", String(fresh.length)], ` meet new angles${fresh.length ? ` (${fresh.join(", ")})` : ""}. Pair 0, which tells neighbours apart, `,
      ...(price < 1.005 ? ["keeps its speed"] : ["pays: it turns ", ["price", number(price)], " times slower"]),
      ...(scheme.value === "yarn" ? [". YaRN also multiplies scores by ", ["sharper", number((0.1 * Math.log(scale.value) + 1) ** 2)]] : []), ".",
    );
  }
  update();
});
