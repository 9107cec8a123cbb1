// The quiz of a chapter. The page's own text is the quiz: a question is a paragraph that begins with its number in bold,
// and its choices are the `details` below it. Without this script they are folded text.
//
// The first choice that a reader opens counts. Nothing is kept: leave the page, and the quiz is new.

const RIGHT = "Right."; // how the text of the right choice begins
const { make } = Kept; // progress.js

function quiz() {
  const section = document.querySelector(".bd-article section#quiz");
  const questions = section ? gathered(section) : [];
  if (!questions.length) return;
  linkSections(section);
  const score = make("p", { className: "quiz-score" });
  score.setAttribute("role", "status");
  const again = make("button", { type: "button", textContent: "Try again", className: "quiz-again", hidden: true });
  section.append(make("div", { className: "quiz-end" }, score, again));

  questions.forEach(({ choices }, number) => {
    for (const choice of choices) {
      const summary = choice.querySelector("summary");
      // A click, not `toggle`: printing and searching the page open choices as well, and answer nothing.
      summary.addEventListener("click", () => choice.open || take(number, choice));
    }
  });
  again.addEventListener("click", () => {
    for (const question of questions) {
      delete question.first;
      for (const choice of question.choices) {
        choice.open = false;
        choice.classList.remove("quiz-right", "quiz-wrong");
        choice.querySelector(".quiz-mark")?.remove();
      }
    }
    say("");
    questions[0].choices[0].querySelector("summary").focus();
  });

  function take(number, choice) {
    const question = questions[number];
    const right = isRight(choice);
    if (!choice.querySelector(".quiz-mark")) {
      const word = right ? "✓ right" : "✗ no";
      choice.classList.add(right ? "quiz-right" : "quiz-wrong");
      choice.querySelector("summary").append(" ", make("span", { className: "quiz-mark" }, word));
    }
    if (question.first) return;
    question.first = choice;
    say(`Question ${number + 1}: ${right ? "right" : "no"}. `);
  }

  function say(answer) {
    const taken = questions.filter((question) => question.first);
    const hits = taken.filter((question) => isRight(question.first)).length;
    const left = questions.length - taken.length;
    again.hidden = left > 0;
    score.textContent = left
      ? answer && `${answer}${left} to go.`
      : `${answer}${hits} of ${questions.length} at the first try.`;
  }
}

/** The questions, each wrapped with its choices into a group. On paper come lists of choices first, then all answers (quiz.css). */
function gathered(section) {
  const questions = [];
  for (const element of [...section.children]) {
    const number = element.matches("p") && element.firstElementChild?.matches("strong") && parseInt(element.textContent);
    if (number) {
      const group = make("div", { className: "quiz-question" });
      element.id ||= `quiz-${number}`;
      group.setAttribute("role", "group");
      group.setAttribute("aria-labelledby", element.id);
      element.before(group);
      const paper = make("ol", { className: "quiz-paper", type: "A" });
      group.append(element, paper);
      questions.push({ group, paper, number, choices: [] });
    } else if (element.matches("details") && questions.length) {
      const { group, paper, number, choices } = questions.at(-1);
      const label = `${number} ${"ABCD"[choices.length]}`;
      const summary = element.querySelector("summary");
      paper.append(make("li", { innerHTML: summary.innerHTML.trim() }));
      summary.prepend(make("span", { className: "quiz-label", textContent: label }));
      choices.push(element);
      group.append(element);
    }
  }
  questions[0]?.group.before(make("p", { className: "quiz-answers" }, "Answers"));
  return questions;
}

/** An explanation names a section of the page in italics: let the name lead there. */
function linkSections(quiz) {
  const sections = new Map();
  for (const heading of document.querySelectorAll(".bd-article section > :is(h2, h3)")) {
    sections.set(heading.textContent.replace(/#$/, "").trim(), heading.parentElement.id);
  }
  for (const name of quiz.querySelectorAll("details em")) {
    const id = sections.get(name.textContent.trim());
    if (id) name.replaceChildren(make("a", { href: `#${id}` }, ...name.childNodes));
  }
}

function isRight(choice) {
  return choice.querySelector("summary ~ p > strong")?.textContent === RIGHT;
}

quiz();
