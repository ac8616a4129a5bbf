# `make docs` builds the site in build/docs. Every example in it is run by `make test` (test/unit/docs).
.PHONY: docs
docs: $(STAMP)
	$(BIN)/python -c 'import sphinx, myst_parser, furo' 2>/dev/null || $(PIP) -e '.[docs]' --config-settings editable_mode=compat
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"
