# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DOCS_INSTALLED := .venv/.installed-docs

.PHONY: help install demo test types behaviour nightly format docs image clean

help:
	@echo "make demo    install, then show a class collapse and its remedy on real images"
	@echo "make test    install, then check style, types and behaviour"
	@echo "make nightly run the tests that take long"
	@echo "make format  rewrite the code in the project's style"
	@echo "make docs    rewrite the pages that are made from the code, and build the site in build/site"
	@echo "make image   build the container image trivet, by podman or docker"
	@echo "make clean   remove .venv and caches"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Trivet needs Python 3.11 or newer: $(PYTHON) is older; run make PYTHON=python3.11 (or newer)."; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/trivet demo --force

# One thread for each of the two test processes: more only wait for each other. Bytecode is kept where the environment
# forbids it, too: without it, each of them reads every test anew, and every program that a test starts the library.
TESTED := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# Types take a minute on one core: meanwhile the tests begin.
test: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory --jobs 2 types behaviour

types: $(INSTALLED)
	$(BIN)/mypy

behaviour: $(INSTALLED)
	$(TESTED)

# What takes long and seldom breaks: every arm of the published protocols, on miniatures, and more generated batches.
nightly: $(INSTALLED)
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	$(TESTED) -m nightly --timeout=1800 tests
	$(TESTED) --hypothesis-profile=nightly tests/test_brute_force.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

# The site needs no server and no network: build/site/index.html. It holds the pages as Markdown, too, for llms.txt,
# without those of the reference, whose texts come from the docstrings.
docs: $(DOCS_INSTALLED)
	$(BIN)/python docs/make_settings.py
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/make_architecture.py
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_json.py
	$(BIN)/python docs/make_experiments.py
	$(BIN)/python docs/make_llms.py
	$(BIN)/python docs/make_site.py
	$(BIN)/zensical build --strict --clean
	cp -R build/pages/. build/site
	rm build/site/reference/*.md

# BUILD holds further options, such as BUILD='--build-arg EXTRAS=train,text'.
image:
	@engine=$$(command -v podman || command -v docker) || \
		{ echo "An image needs podman or docker: neither is installed; install one, or run make install."; exit 2; }; \
	$$engine build --file Containerfile --tag trivet $(BUILD) .

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -prune -exec rm -r {} +
