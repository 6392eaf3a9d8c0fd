#!/usr/bin/env bash
# The long list of programs under a system-call filter like Docker's and Podman's default profiles, with no_new_privs: as
# root with the capabilities that Docker leaves, and as an ordinary user. container.c has the filter.
. "$(dirname "$0")/lib.sh"

box=$BUILD/tests/container
mkdir -p "$BUILD/tests"
[ "$TOP/tests/e2e/container.c" -nt "$box" ] && { gcc -D_GNU_SOURCE -O1 -Wall -Wextra -o "$box" "$TOP/tests/e2e/container.c" || exit 1; }
"$box" --profile true 2>box.err || { skip "a container's profile" "no system-call filters here: $(cat box.err)"; exit; }

# That the filter is one
"$box" --profile unshare -U true 2>/dev/null
check "the profile refuses namespaces" test $? != 0
"$box" --profile setarch -X true 2>/dev/null
check "and personalities" test $? != 0
python3 -c 'import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); sys.exit(l.syscall(435, 0, 0) != -1 or ctypes.get_errno() != 22)' 2>/dev/null &&
    check "and knows no clone3" "$box" --profile python3 -c 'import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); sys.exit(l.syscall(435, 0, 0) != -1 or ctypes.get_errno() != 38)'

run_list() { # run_list WHO COMMAND...: the list's results, each with WHO
    local who=$1
    shift
    "$@" 2>&1 | sed "s/^ok /ok $who: /; s/^not ok /not ok $who: /; s/^skip /skip $who: /"
}
mkdir mine
if [ "$(id -u)" != 0 ]; then
    (cd mine && run_list user "$box" --profile bash "$TOP/tests/e2e/programs.sh")
    skip "root" "this is an ordinary user"
    exit
fi
base=$(mktemp -d /tmp/clio-seccomp.XXXXXX)
trap 'rm -rf "$base"' EXIT
chmod 755 "$base"
make -s -C "$TOP" install PREFIX="$base/usr" >install.log 2>&1
verdict $? "make install" || { cat install.log; exit 1; }
cp "$box" "$TOP"/tests/e2e/lib.sh "$TOP"/tests/e2e/programs.sh "$base/"
mkdir "$base/home" && chown nobody "$base/home"
(cd mine && run_list root "$box" --profile --caps bash "$TOP/tests/e2e/programs.sh") >root.log &
(cd "$base/home" && run_list nobody "$base/container" --profile --user 65534 env -i HOME="$base/home" PATH="$PATH" \
    TOP="$base" BUILD="$base" CLIO="$base/usr/bin/clio" CLIO_TEST_JOB="${CLIO_TEST_JOB:-}" LC_ALL=C TZ=UTC \
    bash "$base/programs.sh") >nobody.log &
wait
cat root.log nobody.log
check "each list was gone through" test "$(grep -c '^ok' root.log)" -gt 40 -a "$(grep -c '^ok' nobody.log)" -gt 40
