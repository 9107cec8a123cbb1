# From Sets to Sequences: every command of the project. `make` alone lists them.
# The environment is made in .venv when it is missing, and brought up to date when what it is made from changes.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
SITE := _build/html
PORT ?= 8000
BRANCH ?= main

# An inherited MPLBACKEND would keep figures from being displayed in notebooks.
unexport MPLBACKEND

# Two notebooks or test files run side by side on two cores: more threads each would only wait for one another.
test oldest newest notebooks exercises: export OMP_NUM_THREADS = 1

.DEFAULT_GOAL := help
.PHONY: help book serve pdf comfort test oldest newest links notebooks exercises pages mutants broken margins bench release lock repository clean

help: ## list these commands
	@echo "make COMMAND, where COMMAND is"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-13s %s\n", $$1, $$2 }'

$(STAMP): requirements.txt requirements-alone.txt pyproject.toml
	@if [ ! -x $(BIN)/python ]; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "error: $(PYTHON) is missing or older than Python 3.11. Install a newer one," >&2; \
	    echo "       or name it: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }; \
	  echo "making .venv with $$($(PYTHON) --version)"; \
	  $(PYTHON) -m venv .venv || { rm -rf .venv; \
	    echo "error: $(PYTHON) cannot make a virtual environment." >&2; \
	    echo "       On Debian and Ubuntu: apt-get install python3-venv (or python3.12-venv, …)" >&2; exit 1; }; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-alone.txt -e .
	@touch $@

book: $(STAMP) ## build the site, warnings as errors
	$(BIN)/jupyter-book build . -W -n --keep-going
	@echo "The book is at $(CURDIR)/$(SITE)/index.html"

serve: book ## build the site and serve it on this machine (PORT=8000)
	@echo "The book is at http://localhost:$(PORT) until you press Ctrl-C"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory $(SITE)

pdf: book ## the whole book as one PDF for paper, printed by Chromium
	$(BIN)/python -m tools.pdf

comfort: book ## how soon each page can be read on a slow phone, and how soon it answers (PAGES="book/intro …")
	$(BIN)/python -m tools.comfort $(PAGES)

# nbval compares text, HTML and the like, and not image/png or image/jpeg: their bytes differ between builds of
# matplotlib and FreeType. Its 5 s wait for output is fixed, but starts only when the cell has finished, so a long
# silent cell is safe. One worker takes all cells of a file, which share a kernel (loadfile). The notebooks run as a
# reader has them: copies, alone in a folder, in an environment with nothing else of ours (tools/reader.py).
test: export JUPYTER_PATH = $(CURDIR)/_build/reader/share/jupyter
test: book ## everything: site, style, tests, every notebook re-run and compared, run times
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest tests -n 2 --dist loadfile
	@rm -f _build/durations.json
	$(BIN)/python -m tools.reader
	$(BIN)/python -m pytest _build/reader/book -n 2 --dist loadfile -q \
	  -p tools.durations --nbval --nbval-kernel-name=reader --nbval-cell-timeout=120
	$(BIN)/python -m tools.budget

# The tests that need neither the site nor the grader nor libraries that a reader lacks, and every notebook alone.
ELSEWHERE := $(wildcard tests/test_chapter_*.py) $(patsubst %,tests/test_%.py, \
  attention chapters checks decode device doctor exercises figures model production quiz symmetry)
define elsewhere
$(1)/bin/python -m pytest $(ELSEWHERE) -n 2 --dist loadfile
$(1)/bin/python -m tools.colab --elsewhere
endef

.oldest/.installed: requirements-oldest.txt pyproject.toml
	$(PYTHON) -m venv --clear .oldest
	.oldest/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-oldest.txt
	.oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

oldest: .oldest/.installed ## library and notebooks on the oldest versions that pyproject.toml allows, in .oldest
	$(call elsewhere,.oldest)

newest: ## library and notebooks on the newest releases there are, in .newest
	$(PYTHON) -m venv --clear .newest
	sed '/^#/d; s/==.*//' requirements-oldest.txt > .newest/requirements.txt
	.newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -r .newest/requirements.txt
	.newest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(call elsewhere,.newest)

links: $(STAMP) ## ask every address of another site whether it is still there
	$(BIN)/python -m tools.links

notebooks: $(STAMP) ## run notebooks and store their outputs (PATHS="chapters/01_….ipynb", all if left out)
	$(BIN)/python -m tools.notebooks $(PATHS)

exercises: $(STAMP) ## make the exercise notebooks from the solutions
	$(BIN)/python -m tools.exercises

pages: $(STAMP) ## make the pages that collect claims, red flags, recaps and questions from the chapters
	$(BIN)/python -m tools.pages

mutants: $(STAMP) ## break every solution a little, and count what the checks notice
	$(BIN)/python -m tools.mutants

margins: $(STAMP) ## how far the chapters' assertions are from their limits, over seeds, threads and kernels (PATHS)
	$(BIN)/python -m tools.margins $(PATHS)

broken: $(STAMP) ## break every part of the library a little, and see which test, exercise or chapter notices
	$(BIN)/python -m tools.library_mutants

bench: $(STAMP) ## the library beside others, to book/benchmarks.md; and how fast a class is graded
	$(BIN)/python -m bench
	$(BIN)/python -m bench.grading

release: book ## what is given away: site, library, classroom without a network, autograders
	$(BIN)/python -m tools.release

lock: $(STAMP) ## pin in requirements.txt what .venv holds
	$(BIN)/python -m tools.lock

repository: $(STAMP) ## move the book to another address (URL=https://github.com/OWNER/NAME, BRANCH=main)
	@test -n "$(URL)" || { echo "error: say where to: make repository URL=https://github.com/OWNER/NAME" >&2; exit 1; }
	$(BIN)/python -m tools.repository "$(URL)" --branch "$(BRANCH)"

clean: ## remove the built site and caches (.venv stays)
	rm -rf _build .cache .pytest_cache .ruff_cache
	find . -path ./.venv -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -exec rm -rf {} +
