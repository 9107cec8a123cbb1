// What all explorables share: sliders, choices, buttons, drawing, and words for what happens. Needs nothing else.
// An explorable is `Explore.define(name, title, (box, data) => …)`. `box` makes its controls and its picture.
window.Explore ??= (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const INK = "#22262b", FAINT = "#c9c7bf", PAPER = "#fbfaf6";
  const [BLUE, ORANGE, GREEN, SKY, RED] = ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00"];
  const DARK_ORANGE = "#9a6700"; // for sliders: browsers give a light one a dark track
  const AMOUNT = [PAPER, SKY, BLUE, "#00304c"], SIGNED = [BLUE, SKY, PAPER, ORANGE, RED]; // as in posenc/figures.py
  let count = 0;

  function make(tag, attributes = {}, parent = null, text = null) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    parent?.append(element);
    return element;
  }

  function draw(tag, attributes = {}, parent = null, text = null) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    parent?.append(element);
    return element;
  }

  /** A number with so many digits after the point, and a minus sign that is one. Never "−0.00". */
  function number(value, digits = 2) {
    const text = value.toFixed(digits);
    return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
  }

  /** The colour of `value` on the scale of the book's figures: 0 to limit, or −limit to limit if signed. */
  function colour(value, limit, signed = false) {
    const stops = signed ? SIGNED : AMOUNT;
    const share = Math.min(1, Math.max(0, signed ? (value / limit + 1) / 2 : value / limit));
    const at = Math.min(stops.length - 2, Math.floor(share * (stops.length - 1)));
    const between = share * (stops.length - 1) - at;
    const channel = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
    const mixed = [0, 1, 2].map((k) => Math.round(channel(stops[at], k) * (1 - between) + channel(stops[at + 1], k) * between));
    return `rgb(${mixed.join(",")})`;
  }

  /** Round ends and steps for an axis over [low, high]. */
  function ticks(low, high, about = 5) {
    const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rough);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }

  class Box {
    constructor(root, title) {
      this.root = root;
      make("p", { class: "ex-title" }, root, title);
      this.plots = make("div", { class: "ex-plots" }, root);
      this.said = make("p", { class: "ex-said", "aria-live": "polite" }, root); // beside the picture, on a phone too
      this.controls = make("div", { class: "ex-controls" }, root);
    }

    /** A slider. `show` turns its value into words; `change` is told of each new value. Returns { value, set }. */
    slider({ label, name, min, max, step = 1, value, show = String, colour: ink, change = () => {} }) {
      const line = make("label", { class: "ex-slider" }, this.controls);
      if (ink) line.style.setProperty("--ex-colour", ink);
      make("span", {}, line, label);
      const output = make("output", {}, line);
      const input = make("input", { type: "range", name: `${name}-${++count}`, "data-name": name, min, max, step, value }, line);
      const now = () => Number(input.value);
      const words = () => { output.value = show(now()); input.setAttribute("aria-valuetext", output.value); };
      input.addEventListener("input", () => { words(); change(now()); });
      words();
      return { input, get value() { return now(); }, set(next) { input.value = next; words(); } };
    }

    /** One of several, as radio buttons. `options` is [value, words] pairs. Returns { value }. */
    choice({ label, name, options, value, change = () => {} }) {
      const group = make("fieldset", {}, this.controls);
      make("legend", {}, group, label);
      const line = make("div", { class: "ex-options" }, group);
      const together = `${name}-${++count}`;
      for (const [each, words] of options) {
        const option = make("label", {}, line);
        const input = make("input", { type: "radio", name: together, "data-name": name, value: each }, option);
        input.checked = each === value;
        input.addEventListener("change", () => change(each));
        make("span", {}, option, words);
      }
      return { get value() { return group.querySelector(":checked").value; } };
    }

    /** Buttons in one line: [words, name, press] each. */
    buttons(...each) {
      const line = make("div", { class: "ex-buttons" }, this.controls);
      return each.map(([words, name, press]) => {
        const button = make("button", { type: "button", "data-name": name }, line, words);
        button.addEventListener("click", press);
        return button;
      });
    }

    /** An empty drawing of this size, with words for who cannot see it. */
    svg(width, height, label) {
      return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, this.plots);
    }

    /** Say what is so now. Parts are text, or [name, number] pairs that stand out. Controls below do not jump back. */
    say(...parts) {
      this.said.replaceChildren(...parts.map((part) => {
        if (!Array.isArray(part)) return document.createTextNode(part);
        return make("span", { class: "ex-number", "data-name": part[0] }, null, part[1]);
      }));
      const width = this.root.clientWidth;
      if (width !== this.width) this.said.style.minHeight = "";
      this.width = width;
      if (width) this.said.style.minHeight = `${this.said.getBoundingClientRect().height}px`;
    }
  }

  /** A plot with axes. Returns { x, y, line, area }: scales from data to the drawing, and a function that draws a line. */
  function plot(svg, { x: [x0, x1], y: [y0, y1], xlabel, ylabel, right = 10, bottom = 40, xticks, yticks }) {
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const left = 46, top = 12;
    const x = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
    const y = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
    const axes = draw("g", {}, svg);
    for (const at of xticks ?? ticks(x0, x1)) {
      draw("line", { x1: x(at), x2: x(at), y1: y(y0), y2: y(y1), stroke: FAINT, "stroke-width": 0.6 }, axes);
      draw("text", { x: x(at), y: height - bottom + 16, "text-anchor": "middle" }, axes, String(at).replace("-", "−"));
    }
    for (const at of yticks ?? ticks(y0, y1)) {
      draw("line", { x1: x(x0), x2: x(x1), y1: y(at), y2: y(at), stroke: FAINT, "stroke-width": 0.6 }, axes);
      draw("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, axes, String(at).replace("-", "−"));
    }
    draw("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, axes, xlabel);
    draw("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${(top + height - bottom) / 2}) rotate(-90)` }, axes, ylabel);
    const area = draw("g", {}, svg);
    const path = (points) => points.map(([a, b], k) => `${k ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    const line = (points, attributes) => draw("path", { d: path(points), fill: "none", "stroke-width": 2, ...attributes }, area);
    return { x, y, path, line, area };
  }

  /** Where scripts run, the explorable takes the place of the figure in the same output; paper keeps the figure. */
  function replaceFigure(root) {
    const output = root.closest(".cell_output, .jp-OutputArea, #output-area") ?? root.parentElement;
    const figure = [...output.querySelectorAll("img")].find((img) => img.compareDocumentPosition(root) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (!figure) return;
    figure.classList.add("ex-figure");
    figure.hidden = true;
  }

  function define(name, title, start) {
    for (const root of document.querySelectorAll(`.explorable[data-explorable="${name}"][hidden]`)) {
      start(new Box(root, title), JSON.parse(root.querySelector("script").textContent));
      root.hidden = false;
      replaceFigure(root);
    }
  }

  return { define, make, draw, number, colour, plot, INK, FAINT, PAPER, BLUE, ORANGE, DARK_ORANGE, GREEN, SKY, RED };
})();
