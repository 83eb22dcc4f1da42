# Every target makes the virtual environment that it needs; nothing but Python and make is assumed.
PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin

.PHONY: demo test check bench accuracy choices curves format clean

demo: $(VENV)/.installed        ## fit and forecast the CO2 record; writes demo/forecast.png
	$(BIN)/python demo/co2.py

test: $(VENV)/.installed        ## all tests, with the examples of README and docs
	$(BIN)/python -m pytest

check: $(VENV)/.installed       ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH)/.installed      ## speed against the products alone, torch and JAX
	$(BENCH)/bin/python -m benchmarks.speed

accuracy: $(BENCH)/.installed   ## errors and coverage with default settings; needs BOCHNER_DATA
	$(BENCH)/bin/python -m benchmarks.accuracy

choices: $(BENCH)/.installed    ## what each default is worth, on validation rows; needs BOCHNER_DATA
	$(BENCH)/bin/python -m benchmarks.choices

curves: $(BENCH)/.installed     ## learning curves of the paper's methods; needs BOCHNER_DATA
	$(BENCH)/bin/python -m benchmarks.curves

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# The newest torch that the index offers for this machine may bring GPU packages of several GB;
# TORCH names another requirement, such as a CPU build.
TORCH ?= torch
$(BENCH)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet '$(TORCH)'
	$(BENCH)/bin/python -m pip install --quiet --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) $(BENCH)
