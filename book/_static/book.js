// Small repairs of what the theme leaves undone. Every page works without them.

const BLOCKS = "#main-content .bd-article :is(section, blockquote) > :is(p, ul, ol, dl, blockquote, details, div)";
const BOXES = "div.math, span.math, .bd-article .output";

/** A box that scrolls sideways must be reachable by keyboard. The theme sees to code and tables, not to formulas. */
function letScroll(boxes) {
  const wide = boxes.map((box) => box.scrollWidth > box.clientWidth); // first look at all, then change: one layout
  boxes.forEach((box, number) => {
    if (wide[number]) {
      box.tabIndex = 0;
      if (box.matches(".math")) box.setAttribute("role", "group");
      if (box.matches(".math")) box.setAttribute("aria-label", "Wide formula");
    } else if (box.matches(".math") && box.tabIndex === 0) {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  });
}

/** Look at the page's boxes a few at a time, so that a slow phone answers in between. */
async function letAllScroll() {
  const boxes = [...document.querySelectorAll(BOXES)];
  while (boxes.length) {
    letScroll(boxes.splice(0, 40));
    await new Promise((done) => setTimeout(done));
  }
}

/** Call `work` when the next picture is shown. */
const afterPicture = (work) => requestAnimationFrame(() => setTimeout(work));

/** Call `work` when there is nothing else to do (a touch comes first), and if that does not come, all the same. */
const whenIdle = (work) => (window.requestIdleCallback ? requestIdleCallback(work, { timeout: 100 }) : setTimeout(work));

/** The search index is as heavy as a figure: it is loaded when a reader goes to the search box, once that is drawn. */
function loadIndexWhenSearching() {
  const { content_root: root } = document.documentElement.dataset;
  document.addEventListener("focusin", function load({ target }) {
    if (!target.matches("form.bd-search input") || typeof Search === "undefined") return;
    afterPicture(() => Search.hasIndex() || Search.loadIndex(`${root}searchindex.js`));
    document.removeEventListener("focusin", load);
  });
}

/** Give the fold buttons of the sidebar a name, and those of code cells the name that they show. */
function nameFoldButtons() {
  for (const summary of document.querySelectorAll(".bd-docs-nav summary")) {
    const chapter = summary.closest("li").querySelector("a").textContent.trim();
    summary.setAttribute("aria-label", `Pages of ${chapter}`);
  }
  for (const summary of document.querySelectorAll("details.hide > summary")) summary.removeAttribute("aria-label");
}

/** Print unfolded and on white, then put everything back. Code that shows something on paper stays folded. */
function prepareForPaper() {
  const root = document.documentElement;
  let folded = [];
  let theme = root.dataset.theme;
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".bd-article details:not([open])")].filter(
      (details) => !details.matches(".hide:has(~ .cell_output)"),
    );
    for (const details of folded) details.open = true;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
    root.dataset.theme = theme;
  });
}

/** Search results quote a page's text: no TeX but single letters, no tables that code made, no answers of the quiz. */
function cleanSearchResults() {
  if (typeof Search === "undefined") return;
  const toText = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    for (const part of page.querySelectorAll(".cell_output .text_html, details.hide > summary, svg, #quiz details")) part.remove();
    for (const formula of page.querySelectorAll(".math")) {
      const source = formula.textContent.replace(/\\[()[\]]/g, "").trim();
      formula.textContent = /[\\^_{]/.test(source) ? "…" : source;
    }
    return toText(page.documentElement.outerHTML, anchor);
  };
}

/**
 * A change of the whole page is drawn first where one looks: the blocks just above and below the screen are passed over
 * for one picture, and then brought up to date, the nearest first, a few at a time. Those further off wait anyway.
 */
function drawFirstWhatIsSeen() {
  const blocks = [...document.querySelectorAll(BLOCKS)];
  const seen = new Set();
  const watch = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      seen[isIntersecting ? "add" : "delete"](target);
      if (isIntersecting) delete target.dataset.away; // the reader was faster
    }
  });
  for (const block of blocks) watch.observe(block);
  document.addEventListener("click", ({ target }) => {
    if (!target.closest?.(".theme-switch-button")) return;
    const away = around(blocks, seen, 50);
    for (const block of away) block.dataset.away = "";
    const bringBack = () => {
      for (const block of away.splice(0, 6)) delete block.dataset.away;
      if (away.length) whenIdle(bringBack);
    };
    setTimeout(() => whenIdle(bringBack), 600); // the next touch may follow at once
  });
}

/** The place of a reader who has come back is found, and each block remembers its height. What is near stays as it is. */
function passOverWhatIsFar() {
  const watch = new IntersectionObserver(
    (changes) => {
      for (const { target, isIntersecting } of changes) if (!isIntersecting) target.dataset.far = "";
      watch.disconnect();
    },
    { rootMargin: "100%" },
  );
  for (const block of document.querySelectorAll(BLOCKS)) watch.observe(block);
}

/** So many blocks before those that are seen, and as many after them, the nearest first. */
function around(blocks, seen, reach) {
  const numbers = blocks.flatMap((block, number) => (seen.has(block) ? [number] : []));
  const [first, last] = [numbers[0], numbers.at(-1)];
  const found = [];
  for (let step = 1; numbers.length && step <= reach; step++) found.push(blocks[last + step], blocks[first - step]);
  return found.filter(Boolean);
}

/**
 * The search lies over the page, and does not take it away: a page that cannot be touched any more is styled anew as a
 * whole, which a slow phone feels. So it closes by itself when a reader presses Escape, goes on, or touches the page.
 */
function openSearchLightly() {
  const dialog = document.querySelector("#pst-search-dialog");
  if (!dialog) return;
  const outside = (node) => dialog.open && node && !dialog.contains(node);
  dialog.showModal = () => {
    dialog.show();
    dialog.querySelector("input").focus();
  };
  dialog.addEventListener("keydown", ({ key }) => key === "Escape" && dialog.close());
  dialog.addEventListener("focusout", ({ relatedTarget }) => outside(relatedTarget) && dialog.close());
  let closing = false; // the touch that closes it follows no link below it
  document.addEventListener("pointerdown", ({ target }) => (closing = outside(target)), true);
  const touchPage = (event) => {
    if (!closing) return;
    closing = false;
    event.preventDefault();
    event.stopImmediatePropagation();
    dialog.close();
  };
  document.addEventListener("click", touchPage, true);
}

/**
 * A touch of the theme's button shows at once in the button, and in the page when that is drawn: a slow phone needs longer
 * for a page than a reader should wait for an answer. https://web.dev/articles/optimize-inp calls it yielding.
 */
function answerBeforeThePageTurns() {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const answer = (event) => {
    const button = event.target.closest?.(".theme-switch-button");
    if (!button || !event.isTrusted) return; // ours, from below: now the theme acts
    event.stopPropagation();
    const { mode } = root.dataset;
    const modes = prefersDark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"]; // the theme's own order
    root.dataset.mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    afterPicture(() => {
      root.dataset.mode = mode; // as the theme knows it
      button.click();
    });
  };
  document.addEventListener("click", answer, true);
}

/** The theme takes the focus from a pressed button, to be rid of its tooltip. Here it has none, and the focus stays. */
function keepFocus() {
  for (const button of document.querySelectorAll(".theme-switch-button, .search-button")) button.blur = () => {};
}

/** Escape closes a menu. Sphinx takes the key for itself, to hide what a search has highlighted. */
function closeMenus() {
  const close = ({ key }) => key === "Escape" && document.querySelector(":popover-open")?.hidePopover();
  document.addEventListener("keydown", close, true);
}

document.addEventListener("DOMContentLoaded", async () => {
  nameFoldButtons();
  prepareForPaper();
  cleanSearchResults();
  loadIndexWhenSearching();
  openSearchLightly();
  closeMenus();
  answerBeforeThePageTurns();
  keepFocus();
  await window.MathJax?.startup?.promise;
  await document.fonts.ready; // lines are as high as they will stay
  delete document.documentElement.dataset.typesetting; // also if MathJax did not come: then one reads the source
  await letAllScroll();
  document.documentElement.dataset.ready = "";
  if ("returned" in document.documentElement.dataset) passOverWhatIsFar();
  drawFirstWhatIsSeen();
  window.addEventListener("resize", letAllScroll);
  document.addEventListener("toggle", ({ target }) => letScroll([...target.querySelectorAll(BOXES)]), true);
});
