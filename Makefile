# Clio: `make` builds ./clio, `make check` tests, `make demo` shows. See README.md.
#
# Three programs: clio (commands), build/clio-store (writes traces), build/clio-engine (hosts the guest).
# Variants: VERIFY=1 checks invariants at every step; SAN=1 builds host code with ASan and UBSan (in build-san/).

CC       ?= gcc
PREFIX   ?= /usr/local
B        := build
CFLAGS_X := -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -fno-strict-aliasing
CPPFLAGS_X := -D_GNU_SOURCE -Isrc -Iinclude -MMD -MP
LDFLAGS_X :=

ifdef VERIFY
B        := build-verify
CPPFLAGS_X += -DCLIO_VERIFY
endif
ifdef SAN
B        := build-san
# gcc 12 sees null arguments of formats in the branches that its own checks add.
CFLAGS_X += -fsanitize=address,undefined -fno-omit-frame-pointer -Wno-format-overflow
LDFLAGS_X += -fsanitize=address,undefined
endif

# Code that runs with the guest's fs and vector registers: see src/engine/guest/engine.h.
FAST := $(wildcard src/engine/*/*_fast.c)
FASTFLAGS := -mgeneral-regs-only -fno-stack-protector -fno-tree-loop-distribute-patterns -fno-builtin -fno-sanitize=all

src = $(sort $(wildcard $(addsuffix /*.c,$(addprefix src/,$(1)))))
obj = $(patsubst src/%,$(B)/obj/%.o,$(1))

BASE      := $(call src,base)
TRACE     := $(call src,trace)
# The engine's floors, bottom up: see docs/architecture.md.
FLOORS    := cpu host guest event memory translate load kernel task run
# What is known of processors by name: the commands need it without the engine.
CPU_NAMES := $(addprefix src/engine/cpu/,features.c host.c)
CLIO_SRC  := $(BASE) $(TRACE) $(CPU_NAMES) $(call src,symbols cmd) $(filter-out %/build.c,$(call src,chronicle))
STORE_SRC := $(BASE) $(TRACE) $(call src,store)
ENGINE_SRC := $(BASE) $(TRACE) $(call src,engine $(addprefix engine/,$(FLOORS)) chronicle) $(wildcard src/engine/*/*.S)

CLIO   := $(if $(SAN)$(VERIFY),$(B)/clio,clio)
STORE  := $(B)/clio-store
ENGINE := $(B)/clio-engine

all: $(CLIO) $(STORE) $(ENGINE)

$(CLIO): $(call obj,$(CLIO_SRC))
	@echo "  $@"; $(CC) $(LDFLAGS_X) $(LDFLAGS) -o $@ $^ -lzstd -ldw -lelf -ljansson -lsodium -lZydis
$(STORE): $(call obj,$(STORE_SRC))
	@echo "  $@"; $(CC) $(LDFLAGS_X) $(LDFLAGS) -o $@ $^ -lzstd -lsodium
$(ENGINE): $(call obj,$(ENGINE_SRC))
	@echo "  $@"; $(CC) -pie $(LDFLAGS_X) $(LDFLAGS) -o $@ $^ -lZydis -lzstd

$(call obj,$(FAST)): CFLAGS_X += $(FASTFLAGS)

$(B)/obj/%.c.o: src/%.c
	@mkdir -p $(@D)
	@echo "  $@"; $(CC) $(CPPFLAGS_X) $(CPPFLAGS) $(CFLAGS_X) $(CFLAGS) -fPIE -c -o $@ $<
$(B)/obj/%.S.o: src/%.S
	@mkdir -p $(@D)
	@echo "  $@"; $(CC) $(CPPFLAGS_X) $(CPPFLAGS) -fPIE -g -c -o $@ $<

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

# Debian packages the build and the tests need; installed only where missing.
DEPS_BUILD := libzydis-dev libzstd-dev libxxhash-dev libdw-dev libjansson-dev libsodium-dev
DEPS_TEST  :=

clean:
	rm -rf build build-verify build-san clio

.PHONY: all clean
include $(wildcard make/*.mk)
