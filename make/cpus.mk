# make cpus: records and replays on other processor models, under qemu without KVM; about two minutes for each on an idle
# machine. MODELS="EPYC max" chooses. Not part of make check.
MODELS := IvyBridge Haswell EPYC max

cpus:
	$(MAKE) deps DEPS_TEST="$(DEPS_TEST) $(DEPS_CPUS)"
	$(MAKE) all
	tests/cpus/run $(MODELS)

.PHONY: cpus
