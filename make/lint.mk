# make format: layout as .clang-format has it, checked; `make reformat` applies it. make tidy: .clang-tidy over all sources.
LINTED    = $(CLIO_SRC) $(STORE_SRC) $(filter %.c,$(ENGINE_SRC)) src/chronicle/build.c
FORMATTED = $(wildcard src/*/*.[ch] src/*/*/*.[ch] include/clio/*.h tests/*/*.[ch] tests/*/*/*.[ch] bench/*/*.[ch] demo/*.c)

format:
	@! clang-format --dry-run -Werror $(FORMATTED) 2>&1 | sed -n 's/:[0-9]*:[0-9]*: error.*/: not as .clang-format has it (make reformat)/p' | uniq | grep .

reformat:
	clang-format -i $(FORMATTED)

# A file is looked at again when its object was made again: when it or a header of its has changed. The analyzer gives up
# a path after fewer nodes than it would by itself: a tenth of the time, the same findings.
tidy: $(sort $(LINTED:src/%=$(B)/tidy/%))

$(B)/tidy/%.c: src/%.c $(B)/obj/%.c.o .clang-tidy
	@mkdir -p $(@D)
	@echo "  tidy $<"; clang-tidy --quiet $< -- -std=gnu11 $(filter -D% -I%,$(CPPFLAGS_X)) -Xclang -analyzer-config -Xclang max-nodes=20000 \
		>$@.log 2>&1 || { cat $@.log; exit 1; }; touch $@

.PHONY: format reformat tidy
