# make demo: on a fresh machine, from nothing to the culprit line.
demo:
	$(MAKE) deps DEPS_TEST=
	$(MAKE) all
	demo/run

.PHONY: demo
