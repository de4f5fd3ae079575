# The front door; the work is done by Meson and by the scripts in tools/. `make` alone lists the targets.
#
# SANITIZE=1 (or CI=true) makes `make test` also build and test with ASan and UBSan. JOBS=n limits compile jobs. WERROR=false lets
# other compilers than Debian's warn. PREFIX and DESTDIR steer `make install`.
BUILD ?= build
PREFIX ?= /usr/local
WERROR ?= true
SANITIZE ?= $(if $(filter true 1,$(CI)),1)
SANITIZED = $(if $(filter-out 0,$(SANITIZE)),build-asan)

.PHONY: help build test demo tidy bench fuzz install setup
help:
	@echo "make demo     the whole job on the bundled nano-kimi: a table and an HTML report"
	@echo "make test     build and pass every test (SANITIZE=1: also under ASan and UBSan)"
	@echo "make build    compile into $(BUILD)/"
	@echo "make tidy     check the house rules"
	@echo "make bench    run the benchmarks"
	@echo "make fuzz     fuzz the parsers with clang, FUZZ_SECONDS each (default 30)"
	@echo "make install  install under PREFIX=$(PREFIX)"
setup:
	@tools/setup
build: setup
	@tools/build $(BUILD) -Dwerror=$(WERROR) --prefix=$(PREFIX)
test: build
	@$(if $(SANITIZED),tools/build $(SANITIZED) -Dwerror=$(WERROR) -Db_sanitize=address$(comma)undefined -Db_lundef=false -Doptimization=2 -Dc_args=-g1)
	@tools/run_tests $(BUILD) $(SANITIZED)
demo: build
	@EAGLET=$(BUILD)/eaglet tools/demo.sh
tidy:
	@tools/tidy
bench: build
	@meson test -C $(BUILD) --no-rebuild --benchmark --verbose
fuzz:
	@tools/setup --fuzz
	@tools/fuzz
install: build
	@meson configure $(BUILD) --prefix=$(PREFIX)
	@tools/build $(BUILD)
	@meson install -C $(BUILD) --no-rebuild
comma := ,
