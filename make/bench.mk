# make bench: table and build/bench/results.json. BENCH="gzip ls" chooses workloads, RUNS=5 the runs of each.
bench: deps
	$(MAKE) all
	bench/run $(BENCH)

.PHONY: bench
