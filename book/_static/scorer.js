/* What the search lists first: chapters, then pages, then pages made from chapters, then exercises, then solutions.
 *
 * Sphinx puts this file into its own search (`html_search_scorer`). The numbers are its defaults, but for `score`.
 * Within a kind, an entry of the index (up to 100) comes before a title (up to 16), and a title before a word in the
 * text. Index entries come from book/glossary.toml.
 */
var Scorer = {
  score([page, , , , score]) {
    const kinds = [
      [/^chapters\//, 80],
      [/^book\/(claims|red_flags|sixty_seconds|interview|who_uses_what)$/, 40],
      [/^book\//, 60],
      [/^exercises\//, 20],
      [/./, 0],
    ];
    return score + kinds.find(([pages]) => pages.test(page))[1];
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
