// What a reader has done: chapters read, exercises passed, questions rated. It stays in this browser, under one key:
//
//   { version: 1,
//     read:      { "4": "2026-11-30" },                the day, or "" if the reader took the tick away
//     exercises: { "4.2": "2026-11-30" },
//     drill:     { "q-0123abcd": { box, due, seen } } }  see drill.js
//
// Nothing is sent anywhere. Every page works without this script, and without a browser that keeps things.

const Kept = (() => {
  const KEY = "from-sets-to-sequences";
  const FILE = "from-sets-to-sequences-progress.json";
  const DAY = /^\d{4}-\d\d-\d\d$/;
  const isTick = (day) => day === "" || DAY.test(day);
  const isCard = (card) =>
    Number.isInteger(card?.box) && card.box >= 0 && card.box <= 6 && DAY.test(card.due) && !isNaN(Date.parse(card.seen));
  const PARTS = {
    read: { name: /^\d{1,2}$/, fits: isTick },
    exercises: { name: /^\d{1,2}\.\d{1,2}$/, fits: isTick },
    drill: { name: /^q-[0-9a-f]{8}$/, fits: isCard },
  };
  const empty = () => ({ version: 1, read: {}, exercises: {}, drill: {} });
  let memory = null; // where a browser keeps nothing: for as long as the page is open
  const watchers = [];

  /** What of `found` is in the form above. Null if it is something else altogether. */
  function sound(found) {
    if (found?.version !== 1) return null;
    const state = empty();
    for (const [part, { name, fits }] of Object.entries(PARTS)) {
      for (const [key, value] of Object.entries(found[part] ?? {})) {
        if (name.test(key) && fits(value)) {
          state[part][key] = part === "drill" ? { box: value.box, due: value.due, seen: value.seen } : value;
        }
      }
    }
    return state;
  }

  function parse(text) {
    try {
      return sound(JSON.parse(text));
    } catch {
      return null;
    }
  }

  function load() {
    if (memory) return memory;
    try {
      return parse(localStorage.getItem(KEY)) ?? empty();
    } catch {
      memory = empty();
      return memory;
    }
  }

  /** Change what is kept, and tell everything on the page that shows it. */
  function change(how) {
    const state = load(); // anew each time: another tab may have written
    how(state);
    try {
      localStorage.setItem(KEY, JSON.stringify(state));
    } catch {
      memory = state;
    }
    for (const watcher of watchers) watcher();
  }

  /** Call `watcher` now, and after every change, in other tabs too. */
  function watch(watcher) {
    watchers.push(watcher);
    watcher();
  }
  window.addEventListener("storage", (event) => {
    if (event.key === KEY || event.key === null) for (const watcher of watchers) watcher();
  });

  function save() {
    const file = new Blob([`${JSON.stringify(load(), null, 1)}\n`], { type: "application/json" });
    const link = make("a", { href: URL.createObjectURL(file), download: FILE });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /** Add what a saved file holds. Ticks of both are kept; of a question rated in both, the later rating. */
  function add(text) {
    const saved = parse(text);
    if (!saved) return false;
    change((state) => {
      for (const part of ["read", "exercises"]) {
        for (const [key, day] of Object.entries(saved[part])) state[part][key] ||= day;
      }
      for (const [key, card] of Object.entries(saved.drill)) {
        if (!(Date.parse(state.drill[key]?.seen) > Date.parse(card.seen))) state.drill[key] = card;
      }
    });
    return true;
  }

  function today(after = 0) {
    const day = new Date();
    day.setDate(day.getDate() + after);
    const two = (number) => String(number).padStart(2, "0");
    return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
  }

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  /** Save, load, forget. `parts`: what is forgotten; `named`: how to call that. */
  function controls(parts, named) {
    const said = make("p", { className: "kept-said", role: "status" });
    const chooser = make("input", { type: "file", accept: ".json,application/json", hidden: true });
    chooser.addEventListener("change", async () => {
      const [file] = chooser.files;
      if (!file) return;
      said.textContent = add(await file.text())
        ? "Loaded. What was here before is kept as well."
        : "This is not a file that this book saved. Nothing was changed.";
      chooser.value = "";
    });
    const button = (text, onclick) => make("button", { type: "button", textContent: text, onclick });
    const forget = () => {
      if (!confirm(`Forget ${named} in this browser? Save to a file first if you may want them back.`)) return;
      change((state) => parts.forEach((part) => (state[part] = {})));
      said.textContent = "Forgotten.";
    };
    const row = make("p", { className: "kept-buttons" });
    row.append(
      button("Save to a file", save),
      button("Load a file", () => chooser.click()),
      chooser,
      button(`Forget ${named}`, forget),
    );
    watch(() => {
      load();
      if (memory) said.textContent = "This browser keeps nothing for this page. Save to a file before you leave it.";
    });
    return make("div", { className: "kept-controls" }, row, said);
  }

  /** A tick box that shows and changes `state[part][key]`. */
  function tick(part, key, words) {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => change((state) => (state[part][key] = box.checked ? today() : "")));
    watch(() => (box.checked = Boolean(load()[part][key])));
    return make("label", { className: "kept-tick" }, box, ` ${words}`);
  }

  return { add, change, controls, load, make, tick, today, watch };
})();

// ---- the pages

/** Below a chapter: a tick box. Who has come down the page to its end has read it, and may say otherwise. */
function tickChapter(chapter) {
  const box = Kept.make(
    "section",
    { className: "kept", ariaLabel: "Your progress" },
    Kept.tick("read", chapter, "I have read this chapter"),
    Kept.make("small", {}, "Ticked when you reach this line. It stays in this browser. "),
  );
  box.lastChild.append(Kept.make("a", { href: "../book/intro.html#the-parts" }, "Where am I?"));
  document.querySelector("article.bd-article").append(box);

  const headings = document.querySelectorAll("article h2");
  const passed = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) passed.add(target);
    const untouched = Kept.load().read[chapter] === undefined;
    if (passed.has(box) && passed.size > headings.length / 2) {
      observer.disconnect();
      if (untouched) Kept.change((state) => (state.read[chapter] = Kept.today()));
    }
  });
  for (const place of [...headings, box]) observer.observe(place);
}

/** A tick box below the title of each exercise. */
function tickExercises() {
  const titles = [...document.querySelectorAll("article h2")].filter((title) => /^\d+\.\d+ · /.test(title.textContent));
  for (const title of titles) {
    const [key] = title.textContent.match(/^\d+\.\d+/);
    title.after(Kept.make("p", { className: "kept-exercise" }, Kept.tick("exercises", key, `I have passed ${key}`)));
  }
  titles[0]
    ?.closest("section")
    .before(
      Kept.make(
        "section",
        { className: "kept", ariaLabel: "Your progress" },
        "The checks run in your notebook, and a notebook cannot write to this page. So tick here what you have passed. " +
          "It stays in this browser, and ",
        Kept.make("a", { href: "../book/intro.html#the-parts" }, "the front page"),
        " shows where you are.",
      ),
    );
}

/** On the front page: what is read and passed, beside each chapter, and how to keep it. */
function showPlace(parts) {
  const totals = JSON.parse(document.querySelector('meta[name="exercises"]')?.content ?? "{}");
  const chapters = [];
  for (const line of parts.querySelectorAll("dd")) {
    const link = line.querySelector('a[href*="chapters/"]');
    const number = link?.textContent.match(/^\d+/)?.[0];
    if (!number) continue;
    const mark = Kept.make("span", { className: "kept-mark" });
    (link.closest("p") ?? line).append(mark);
    chapters.push({ number, link, mark });
  }
  const summary = Kept.make("p", { role: "status" });
  const box = Kept.make("section", { className: "kept", ariaLabel: "Your progress" }, summary);
  box.append(Kept.controls(["read", "exercises", "drill"], "everything"));
  parts.querySelector("dl").before(box);

  Kept.watch(() => {
    const { read, exercises } = Kept.load();
    const passed = (number) => Object.keys(exercises).filter((key) => exercises[key] && key.startsWith(`${number}.`));
    for (const { number, mark } of chapters) {
      const ticked = passed(number).length;
      const words = read[number] ? ["✓ read"] : [];
      if (ticked) words.push(`${ticked} of ${Math.max(totals[number] ?? 0, ticked)} exercises`);
      mark.textContent = words.length ? ` ${words.join(" · ")}` : "";
    }
    const done = chapters.filter(({ number }) => read[number]).length;
    const ticked = chapters.reduce((sum, { number }) => sum + passed(number).length, 0);
    const all = Object.values(totals).reduce((sum, number) => sum + number, 0);
    const next = chapters.find(({ number }) => !read[number]);
    summary.textContent = done || ticked
      ? `You have read ${done} of ${chapters.length} chapters and passed ${ticked} of ${all} exercises. `
      : "Come to the end of a chapter, or tick an exercise that you have passed, and you will see it here. ";
    if ((done || ticked) && next) {
      summary.append("Next: ", Kept.make("a", { href: next.link.href }, next.link.textContent), ". ");
    }
    summary.append("This stays in your browser. To take it elsewhere, save it to a file and load the file there.");
  });
}

{
  const [, folder, chapter] = location.pathname.match(/\/(chapters|exercises)\/0*(\d+)_[^/]*$/) ?? [];
  const parts = document.getElementById("the-parts");
  if (folder === "chapters") tickChapter(chapter);
  if (folder === "exercises") tickExercises();
  if (parts) showPlace(parts);
}
