// Chapter 9. A stack of layers over a few tokens: what the row of one token can depend on, layer by layer.
// data: { tokens, token, deepest }
Explore.define("reach", "A stack of layers: how far back does one row look?", (box, data) => {
  const { draw, number, plot, BLUE, ORANGE, FAINT, INK, RED, SKY } = Explore;
  const WIDTH = 340, HEIGHT = 210, LEFT = 86, TOP = 10, BOTTOM = 24;
  const picture = box.svg(WIDTH, HEIGHT, "Layers over tokens. Below the chosen row: every row and token that it can depend on");
  const counts = box.svg(WIDTH, 150, "How many tokens the row can depend on, with so many layers");
  const x = (token) => LEFT + 6 + (token * (WIDTH - LEFT - 12)) / (data.tokens - 1);
  const axes = plot(counts, {
    x: [0, data.deepest], y: [0, data.tokens], xlabel: "layers", ylabel: "tokens seen",
    xticks: [...Array(data.deepest + 1).keys()], yticks: [1, 8, 16, 24],
  });

  const KINDS = [
    ["full", "full"], ["windows", "windows"], ["chunks", "chunks"], ["gemma", "windows + full"], ["llama", "chunks + NoPE"],
  ];
  const kind = box.choice({ label: "Layers", name: "kind", options: KINDS, value: "windows", change: () => update() });
  const slider = (label, name, min, max, value, show = String, ink = undefined) =>
    box.slider({ label, name, min, max, value, show, colour: ink, change: () => update() });
  const token = slider("Row of token", "token", 0, data.tokens - 1, data.token, String, RED);
  const layers = slider("Number of layers", "layers", 1, data.deepest, 1);
  const size = slider("Window, or chunk", "size", 1, 12, 4, (n) => (n === 1 ? "1 token" : `${n} tokens`));
  const every = slider("Full layers", "every", 2, data.deepest, 4, (k) => `every ${k}th`.replace("2th", "2nd").replace("3th", "3rd"));

  const isMixed = () => ["gemma", "llama"].includes(kind.value);
  /** Layers count from 1, from the bottom. */
  const isFull = (layer) => kind.value === "full" || (isMixed() && layer % every.value === 0);
  const isChunked = () => ["chunks", "llama"].includes(kind.value);
  function firstKey(layer, row) {
    if (isFull(layer)) return 0;
    return isChunked() ? row - (row % size.value) : Math.max(0, row - size.value + 1);
  }
  /** rows[k]: the rows above layer k on which the top row depends; rows[0]: tokens. */
  function below(depth) {
    const rows = Array.from({ length: depth + 1 }, () => new Set());
    rows[depth].add(token.value);
    for (let layer = depth; layer > 0; layer--) {
      for (const row of rows[layer]) {
        for (let key = firstKey(layer, row); key <= row; key++) rows[layer - 1].add(key);
      }
    }
    return rows;
  }
  const words = (layer) => (isFull(layer) ? (kind.value === "llama" ? "full, NoPE" : "full") : isChunked() ? "chunks" : "window");

  function update() {
    const depth = layers.value, rows = below(depth);
    every.input.parentElement.style.display = isMixed() ? "" : "none";
    size.input.parentElement.style.display = kind.value === "full" ? "none" : "";
    paint(depth, rows);
    axes.area.replaceChildren();
    const seen = [...Array(depth + 1).keys()].map((k) => [k, below(k)[0].size]);
    axes.line(seen, { stroke: SKY });
    for (const [k, n] of seen) {
      draw("circle", { cx: axes.x(k), cy: axes.y(n), r: k === depth ? 6 : 3.5, fill: k === depth ? RED : BLUE }, axes.area);
    }
    const earliest = Math.min(...rows[0]);
    box.say(
      `After ${depth === 1 ? "1 layer" : `${depth} layers`} the row of token ${token.value} can depend on `, ["seen", number(rows[0].size, 0)],
      rows[0].size === 1 ? " token. " : " tokens. ", "The earliest is token ", ["earliest", number(earliest, 0)], ", ",
      ["back", number(token.value - earliest, 0)], " back. ", remark(depth, earliest),
    );
  }

  function remark(depth, earliest) {
    if (kind.value === "full") return "One full layer is enough to see everything before.";
    const full = [...Array(depth).keys()].map((k) => k + 1).filter(isFull);
    if (isMixed() && full.length === 0) return `No layer is full yet: the first will be layer ${every.value}.`;
    if (full.length) return `Layer ${full[0]} is full and opens the whole past${kind.value === "llama" ? "; it does not rotate, so no offset is new to it" : ""}.`;
    if (isChunked()) return `No layer crosses the edge before token ${earliest}. More layers will not help.`;
    const far = depth * (size.value - 1);
    if (depth === 1) return "Now add layers.";
    return `Windows add up: ${depth} × ${size.value - 1} = ${far} back${far > token.value ? ", but there the text has begun already" : ""}.`;
  }

  function paint(depth, rows) {
    const y = (level) => HEIGHT - BOTTOM - (level * (HEIGHT - TOP - BOTTOM)) / depth;
    picture.replaceChildren();
    for (let edge = size.value; isChunked() && edge < data.tokens; edge += size.value) {
      const between = (x(edge) + x(edge - 1)) / 2;
      draw("line", { x1: between, x2: between, y1: y(0), y2: y(depth), stroke: INK, "stroke-width": 0.8, "stroke-dasharray": "2 3" }, picture);
    }
    for (let layer = 1; layer <= depth; layer++) {
      const ink = words(layer) === "full, NoPE" ? ORANGE : BLUE;
      const lines = [...rows[layer]].flatMap((row) => {
        const first = firstKey(layer, row);
        return Array.from({ length: row - first + 1 }, (_, k) => `M${x(row).toFixed(1)} ${y(layer)}L${x(first + k).toFixed(1)} ${y(layer - 1)}`);
      });
      draw("path", { d: lines.join(""), stroke: ink, "stroke-width": 0.8, opacity: rows[layer].size > 8 ? 0.3 : 0.55 }, picture);
      draw("text", { x: 0, y: (y(layer) + y(layer - 1)) / 2 + 4 }, picture, `${layer}: ${words(layer)}`);
    }
    const oldest = [];
    for (let layer = depth, row = token.value; layer >= 0; row = firstKey(layer, row), layer--) oldest.push(`${x(row)} ${y(layer)}`);
    draw("path", { d: `M${oldest.join("L")}`, fill: "none", stroke: RED, "stroke-width": 2.5 }, picture);
    rows.forEach((reached, level) => {
      for (let at = 0; at < data.tokens; at++) {
        const is = reached.has(at), r = is ? 4.5 : 2, chosen = level === depth && is;
        const look = chosen ? { fill: RED } : is ? { fill: level ? BLUE : INK } : { fill: FAINT };
        draw("rect", { x: x(at) - r, y: y(level) - r, width: 2 * r, height: 2 * r, rx: level ? r : 1, ...look }, picture);
        const target = draw("rect", { x: x(at) - 6, y: y(level) - 12, width: 12, height: 24, fill: "transparent", cursor: "pointer" }, picture);
        target.addEventListener("click", () => { token.set(at), update(); });
      }
    });
    for (let at = 0; at < data.tokens; at += 4) draw("text", { x: x(at), y: HEIGHT - 4, "text-anchor": "middle" }, picture, at);
  }
  update();
});
