#!/usr/bin/env bash
# As an ordinary user, installed elsewhere.
. "$(dirname "$0")/lib.sh"

if [ "$(id -u)" != 0 ]; then
    skip nobody "needs root, to become nobody"
    exit
fi
base=$(mktemp -d /tmp/clio-nobody.XXXXXX)
trap 'rm -rf "$base"' EXIT
chmod 755 "$base"
make -s -C "$TOP" install PREFIX="$base/usr" >install.log 2>&1
verdict $? "make install" || { cat install.log; exit 1; }
mkdir "$base/home" "$base/in" && chown nobody "$base/home"
seq 1 1000 >"$base/in/numbers"

as_nobody() {
    su -s /bin/sh nobody -c "cd $base/home && umask 022 && HOME=$base/home && export HOME && unset CLIO_TRACE_DIR XDG_DATA_HOME && $1" </dev/null
}

as_nobody "$base/usr/bin/clio record -- sh -c 'id -u; whoami; sort -n $base/in/numbers | tail -1; ls -l $base/in; exit 4' >out 2>err"
check "records as nobody" test $? = 4
check "as oneself" grep -q 65534 "$base/home/out"
trace=$base/home/.local/share/clio
check "into the user's directory" test -L "$trace/latest"
check "which is private" test "$(stat -L -c %a "$trace/latest")" = 700
rm -rf "$base/in"
as_nobody "$base/usr/bin/clio replay -a >out2 2>err2"
check "replays as nobody" test $? = 0
check "the same" same_file "$base/home/out" "$base/home/out2"
as_nobody "$base/usr/bin/clio info && $base/usr/bin/clio ps && $base/usr/bin/clio ls && $base/usr/bin/clio dump | head -5" >tools 2>&1
check "info, ps, ls, dump" test $? = 0
# set-uid programs run unrecorded, with a warning
as_nobody "$base/usr/bin/clio record -o suid.trace -- sh -c 'su --version | head -1; echo after' >out 2>err"
check "a set-uid program runs" grep -q after "$base/home/out"
if grep -q '^NoNewPrivs:[[:space:]]*1' /proc/self/status; then
    skip "unrecorded, with a warning" "no_new_privs is set: a set-uid program is one like others"
else
    check "unrecorded, with a warning" said "$base/home/err" "su"
fi
as_nobody "$base/usr/bin/clio replay -a suid.trace >/dev/null 2>err2"
check "and the rest replays" test $? = 0
as_nobody "$base/usr/bin/clio record -- /usr/sbin/nologin; $base/usr/bin/clio record -- /etc/shadow" 2>err
check "a file that may not be read" grep -q "^clio: .*/etc/shadow" err
