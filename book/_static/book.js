// Small repairs of what the theme leaves undone. Every page works without them.

/** A box that scrolls sideways must be reachable by keyboard. The theme sees to code and tables, not to formulas. */
function letFormulasScroll() {
  for (const box of document.querySelectorAll("div.math, span.math, .bd-article .output")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
      if (box.matches(".math")) box.setAttribute("role", "group");
      if (box.matches(".math")) box.setAttribute("aria-label", "Wide formula");
    } else if (box.matches(".math")) {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  }
}

/** Give the fold buttons of the sidebar a name, and those of code cells the name that they show. */
function nameFoldButtons() {
  for (const summary of document.querySelectorAll(".bd-docs-nav summary")) {
    const chapter = summary.closest("li").querySelector("a").textContent.trim();
    summary.setAttribute("aria-label", `Pages of ${chapter}`);
  }
  for (const summary of document.querySelectorAll("details.hide > summary")) summary.removeAttribute("aria-label");
}

/** Print unfolded and on white, then put everything back. */
function prepareForPaper() {
  const root = document.documentElement;
  let folded = [];
  let theme = root.dataset.theme;
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".bd-article details:not([open])")];
    for (const details of folded) details.open = true;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
    root.dataset.theme = theme;
  });
}

/** Search results quote the source of formulas: show it without its delimiters. */
function cleanSearchResults() {
  if (typeof Search === "undefined") return;
  const toText = Search.htmlToText;
  Search.htmlToText = (...page) => toText(...page).replace(/\\[()[\]]/g, "");
}
cleanSearchResults();

document.addEventListener("DOMContentLoaded", async () => {
  nameFoldButtons();
  prepareForPaper();
  await window.MathJax?.startup?.promise;
  letFormulasScroll();
  window.addEventListener("resize", letFormulasScroll);
  document.addEventListener("toggle", letFormulasScroll, true);
});
