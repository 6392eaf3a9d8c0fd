# make deps: installs the Debian packages that are missing. Works as root or with sudo; does nothing, and asks for no
# rights, where everything is there. DEPS_BUILD (Makefile) is what `make` needs, DEPS_TEST what `make check` runs (clang-format and
# clang-tidy: `make format` and `make tidy`).

DEPS_TEST := libcmocka-dev procps git python3 perl sqlite3 lua5.4 gawk xz-utils bzip2 ed vim busybox-static less file clang-format clang-tidy

# What make cpus runs besides.
DEPS_CPUS := qemu-system-x86 cpio

deps:
	@missing=; for p in libc6-dev $(DEPS_BUILD) $(DEPS_TEST); do \
		dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ]; then sudo=; elif command -v sudo >/dev/null; then sudo=sudo; else \
		echo "make deps: these packages are missing and this user may not install them:$$missing" >&2; exit 1; fi; \
	echo "installing$$missing"; \
	install() { $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; }; \
	install >/dev/null 2>&1 || { $$sudo apt-get update && install; }

.PHONY: deps
