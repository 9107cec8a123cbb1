// The questions of this page as cards. The page's own text is the deck: a question is the `summary` of a `details`.
//
// The schedule is Leitner's: seven boxes, each with its number of days. A new question is in box 0.
//   again  box 0, and once more in this sitting
//   hard   the same box (at least 1)
//   good   one box up
//   easy   two boxes up
// A question comes back after the days of its box. Asked before its day, it may fall and does not climb.
// What is kept: { box, due: the day, seen: when it was rated }, by the question's anchor (see progress.js).

const DAYS = [0, 1, 3, 7, 16, 35, 90];
const RATINGS = ["again", "hard", "good", "easy"];
const REST = 3; // so many others first, before one that was wrong comes again

/** The card after `rating`, on the day `today`. */
function rated(card, rating, today = Kept.today()) {
  const box = card?.box ?? 0;
  const early = card !== undefined && card.due > today;
  const climbed = { again: 0, hard: Math.max(box, 1), good: box + 1, easy: box + 2 }[rating];
  const next = Math.min(early ? Math.min(climbed, Math.max(box, 1)) : climbed, DAYS.length - 1);
  return { box: next, due: Kept.today(DAYS[next]), seen: new Date().toISOString() };
}

/** Deal the next of `names`: what is due, the longest unseen first; then what is new; then what has to rest. */
function dealt(names, cards, resting = new Set(), today = Kept.today()) {
  const due = names.filter((name) => cards[name] && cards[name].due <= today);
  due.sort((a, b) => cards[a].due.localeCompare(cards[b].due) || cards[a].seen.localeCompare(cards[b].seen));
  return due.find((name) => !resting.has(name)) ?? names.find((name) => !cards[name]) ?? due[0];
}

function drill() {
  const article = document.querySelector("article.bd-article");
  const deck = [...article.querySelectorAll('details[id^="q-"]')];
  if (!deck.length) return;
  const { make } = Kept;
  const chapters = [...new Set(deck.map((card) => card.closest("section")))];
  let current = null; // the `details` that is asked
  let undo = null; // the question that was rated last, and its card before
  let asked = []; // in this sitting, the latest last
  let early = null; // those still to come, if all are asked again

  const filter = make("select", { id: "drill-chapter" }, make("option", { value: "" }));
  chapters.forEach((_, number) => filter.append(make("option", { value: number })));
  const button = (text, onclick, className = "") => make("button", { type: "button", textContent: text, onclick, className });
  const start = button("Start", () => (current || isOver() ? leave() : ask()), "kept-main");
  const count = make("p", { className: "drill-count" });
  const said = make("p", { className: "drill-said", role: "status" });
  const back = button("Undo the last rating", takeBack);
  const again = button("Ask them all anyway", () => ((early = chosen()), ask()));
  const how = make(
    "details",
    { className: "drill-how" },
    make("summary", {}, "How it works"),
    make(
      "p",
      {},
      "Answer aloud, unfold, and rate yourself. Again: the question comes back in this sitting. Hard: its interval " +
        "stays. Good: one step up. Easy: two. The steps are 1, 3, 7, 16, 35 and 90 days. A question that is asked " +
        "before its day may step down, and does not step up.",
    ),
    make(
      "p",
      {},
      "Keys: space unfolds, 1 to 4 rate, Escape shows the whole list again. Your ratings stay in this browser. To " +
        "take them elsewhere, save them to a file and load the file there.",
    ),
  );
  const panel = make("section", { className: "kept drill", ariaLabel: "Drill" });
  panel.append(
    make("p", { className: "drill-choice" }, make("label", { htmlFor: filter.id }, "Ask me about"), filter, start),
    count,
    said,
    make("p", { className: "kept-buttons" }, again, back),
    how,
    Kept.controls(["drill"], "the ratings"),
  );
  const ratings = make("div", { className: "drill-ratings", role: "group", ariaLabel: "How well did you know it?" });
  RATINGS.forEach((rating, index) => {
    ratings.append(make("button", { type: "button", onclick: () => rate(rating), className: `drill-${rating}` }));
    ratings.lastChild.dataset.key = index + 1;
  });
  const hint = make("p", { className: "drill-hint" }, "Answer aloud. Then open the question: tap it, or press space.");
  (article.querySelector("h1 ~ p") ?? article.querySelector("h1")).after(panel);

  const chosen = () => deck.filter((card) => !filter.value || card.closest("section") === chapters[filter.value]);
  const isOver = () => document.body.classList.contains("drilling") && !current;
  const days = (number) => (number === 0 ? "soon" : number === 1 ? "tomorrow" : `in ${number} days`);

  function show() {
    const { drill: cards } = Kept.load();
    const today = Kept.today();
    const open = (among) => among.filter((card) => !cards[card.id] || cards[card.id].due <= today).length;
    const title = (section) => section.querySelector("h2 a").textContent;
    filter.options[0].textContent = `All chapters (${open(deck)} open)`;
    chapters.forEach((section, number) => {
      const left = open(deck.filter((card) => card.closest("section") === section));
      filter.options[number + 1].textContent = `${title(section)} (${left} open)`;
    });
    const here = chosen();
    const fresh = here.filter((card) => !cards[card.id]).length;
    const due = open(here) - fresh;
    const later = here.map((card) => cards[card.id]?.due).filter((day) => day > today).sort();
    count.textContent =
      `${here.length} questions: ${due} due today, ${fresh} new, ${here.length - due - fresh} known for now.` +
      (later.length && !due && !fresh ? ` The next is due on ${later[0]}.` : "");
    again.hidden = !isOver();
    back.hidden = !undo;
    start.textContent = document.body.classList.contains("drilling") ? "Show all" : "Start";
    [...ratings.children].forEach((rating, index) => {
      const box = current && rated(cards[current.id], RATINGS[index], today).box;
      const name = RATINGS[index][0].toUpperCase() + RATINGS[index].slice(1);
      rating.replaceChildren(make("b", {}, `${index + 1} ${name}`), make("small", {}, days(DAYS[box ?? 0])));
    });
  }

  /** Ask the next question, or say that there is none. */
  function ask() {
    if (!early?.length) early = null;
    const names = (early ?? chosen()).map((card) => card.id);
    const name = early ? names[0] : dealt(names, Kept.load().drill, new Set(asked.slice(-REST)));
    pose(deck.find((card) => card.id === name));
  }

  function pose(card) {
    clear();
    document.body.classList.add("drilling");
    current = card ?? null;
    if (!current) {
      said.textContent = "Nothing more is open here today. Well done.";
      show();
      (again.hidden ? start : again).focus();
      return;
    }
    said.textContent = "";
    current.open = false;
    current.classList.add("asked");
    current.closest("section").classList.add("asking");
    current.after(hint, ratings);
    ratings.hidden = true;
    hint.hidden = false;
    show();
    current.querySelector("summary").focus({ preventScroll: true });
    const { top, bottom } = current.getBoundingClientRect();
    if (top < 0 || bottom > innerHeight * 0.6) panel.scrollIntoView({ block: "start" });
  }

  function clear() {
    for (const card of deck) card.classList.remove("asked");
    for (const section of chapters) section.classList.remove("asking");
    hint.remove();
    ratings.remove();
  }

  function leave() {
    clear();
    current = early = null;
    asked = [];
    said.textContent = "";
    document.body.classList.remove("drilling");
    for (const card of deck) card.open = false;
    show();
    start.focus({ preventScroll: true });
  }

  function rate(rating) {
    const name = current.id;
    undo = { name, before: Kept.load().drill[name], early: early && [...early] };
    asked.push(name);
    if (early) early = early.filter((card) => card !== current);
    Kept.change((state) => (state.drill[name] = rated(state.drill[name], rating)));
    ask();
  }

  function takeBack() {
    const { name, before } = undo;
    Kept.change((state) => {
      if (before) state.drill[name] = before;
      else delete state.drill[name];
    });
    early = undo.early;
    undo = null;
    asked = asked.filter((each) => each !== name);
    pose(deck.find((card) => card.id === name));
  }

  filter.addEventListener("change", () => {
    early = null;
    if (document.body.classList.contains("drilling")) ask();
    filter.focus();
    show();
  });
  article.addEventListener("toggle", () => {
    if (!current) return;
    ratings.hidden = !current.open;
    hint.hidden = current.open;
  }, true);
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.target.closest?.("input, select, textarea, dialog, [contenteditable]");
    if (!document.body.classList.contains("drilling") || elsewhere || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") leave();
    else if (event.key === " " && current && !event.target.closest("button, summary, a")) current.open = !current.open;
    else if ("1234".includes(event.key) && current?.open) rate(RATINGS[event.key - 1]);
    else return;
    event.preventDefault();
  });
  window.addEventListener("hashchange", () => {
    if (!document.body.classList.contains("drilling")) return;
    leave();
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  });
  Kept.watch(show);
}

drill();
