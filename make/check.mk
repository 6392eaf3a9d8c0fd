# make check: everything that must hold. tests/run says how the tests are found and run.

TESTS := $(B)/tests

# ---- unit tests: tests/unit/test_*.c, cmocka programs. They link base, trace, symbols and chronicle; a line
# `// LINK: src/engine/memory/space.c ...` in a test adds engine or store sources.
UNIT_SRC  := $(sort $(wildcard tests/unit/test_*.c))
UNIT      := $(patsubst tests/unit/%.c,$(TESTS)/unit/%,$(UNIT_SRC))
UNIT_LIB  := $(TESTS)/unit/libclio.a
UNIT_LIBS := -Wl,--as-needed -lcmocka -lzstd -ldw -lelf -ljansson -lsodium -lZydis

$(UNIT_LIB): $(call obj,$(call src,base trace symbols chronicle))
	@mkdir -p $(@D)
	@echo "  $@"; rm -f $@ && ar rcs $@ $^

link_of = $(call obj,$(shell sed -n 's|^// LINK:||p' $(1)))
define unit_rule
$(TESTS)/unit/$(1): tests/unit/$(1).c $(call link_of,tests/unit/$(1).c) $(UNIT_LIB)
	@echo "  $$@"; $$(CC) $$(CPPFLAGS_X) -MF $$@.d $$(CPPFLAGS) $$(CFLAGS_X) $$(CFLAGS) $$(LDFLAGS_X) -o $$@ $$< \
		$$(filter %.o,$$^) $$(UNIT_LIB) $$(UNIT_LIBS)
endef
$(foreach t,$(notdir $(basename $(UNIT_SRC))),$(eval $(call unit_rule,$(t))))
-include $(wildcard $(TESTS)/unit/*.d)

unit: $(UNIT)

# ---- the whole
check: export CLIO_TOTALS = $(CURDIR)/build/totals
check: deps
	@mkdir -p build && rm -f $(CLIO_TOTALS)
	$(MAKE) format tidy
	$(MAKE) san
	$(MAKE) verify
	$(MAKE) all unit
	tests/run -t 300

# The same without installing anything; FILTER="guests/sig* e2e/git" chooses tests.
test: all unit
	tests/run $(FILTER)

# Host code under ASan and UBSan: the unit tests, with the store they start, and the fuzzers of readers. Guests run in
# the plain build.
san:
	$(MAKE) SAN=1 build-san/clio-store unit
	CLIO_BUILD=build-san tests/run -t 600 unit/ fuzz/reader fuzz/chronicle

# Guest programs in a build whose engine checks its own invariants as it goes.
verify:
	$(MAKE) VERIFY=1
	CLIO=$(CURDIR)/build-verify/clio CLIO_BUILD=build-verify tests/run -t 300 guests/ e2e/cases e2e/checkmemory

soak: all
	CLIO_SOAK=$${CLIO_SOAK:-300} tests/run -t 3600 e2e/soak e2e/kill

fuzz: all unit
	CLIO_FUZZ=$${CLIO_FUZZ:-300} tests/run -t 3600 fuzz/

.PHONY: unit check test san verify soak fuzz
