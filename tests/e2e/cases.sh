#!/usr/bin/env bash
# The small programs after public bug reports in ../shared/cases, each built as a plain user would and as the odd compiler
# does: recorded and replayed they must do what they do natively.
. "$(dirname "$0")/lib.sh"

cases=${CLIO_CASES:-$TOP/../shared/cases}
if ! ls "$cases"/*.c >/dev/null 2>&1; then
    skip cases "no programs in $cases"
    exit
fi

# into NAME COMMAND...: in an empty directory; output in NAME.out (without what clio says), status in NAME.status
into() {
    local to=$here/$1
    shift
    rm -rf "$here/cwd" && mkdir "$here/cwd"
    (cd "$here/cwd" && exec timeout 60 "$@") >"$to.all" 2>&1 </dev/null
    echo $? >"$to.status"
    grep -av '^clio: ' "$to.all" >"$to.out"
}

case_holds() { # case_holds PROGRAM
    into native "$1"
    if ! grep -q '^OK' native.out && grep -q '^Seccomp:[[:space:]]*2' /proc/self/status; then
        skip "$name, $how build" "it fails natively under this system-call filter"
        return
    fi
    grep -q '^OK' native.out || { echo "natively:"; cat native.out; return 1; }
    rm -rf "$here/case.trace"
    into recorded "$CLIO" record -o "$here/case.trace" -- "$1"
    same_file native.status recorded.status && grep -q '^OK' recorded.out || { echo "recorded:"; cat recorded.all; return 1; }
    for _ in 1 2; do
        into replayed "$CLIO" replay -a "$here/case.trace"
        [ "$(cat replayed.status)" = 0 ] && same_file recorded.out replayed.out || { cat replayed.all; return 1; }
    done
}

for f in "$cases"/*.c; do
    name=$(basename "$f" .c)
    for how in plain odd; do
        flags=-O1
        [ $how = odd ] && flags="-O2 -mno-red-zone -fno-optimize-sibling-calls -Wl,-z,now"
        # shellcheck disable=SC2086
        gcc -w -pthread $flags -o "$name.$how" "$f" || { verdict 1 "$name, $how build"; continue; }
        check "$name, $how build" case_holds "$here/$name.$how"
    done
done
