#!/usr/bin/env bash
# clio record --check-memory: memory is compared at every event; what replay cannot repeat is found there and named.
. "$(dirname "$0")/lib.sh"

checked() { # checked NAME EVERY COMMAND...: records with checks, replays to the end
    local name=$1 every=$2
    shift 2
    rm -rf "$name.trace"
    "$CLIO" record --check-memory="$every" -o "$name.trace" -- "$@" >"$name.out" 2>"$name.err" </dev/null || return 1
    "$CLIO" dump "$name.trace" | grep -q 'check memory of' || return 1
    replays "$name"
}

check "a listing" checked ls 1 ls -l /usr/lib
# shellcheck disable=SC2016
check "a shell with children" checked sh 2 sh -c 'for i in 1 2 3; do echo $i | cat; done | sort -r'
check "python" checked python 20 python3 -c 'import random, json; print(json.dumps([random.random()]))'
check "files that change while they are mapped" checked filemaps 1 "$("$TOP/tests/guest" build filemaps-o2)"

missed() { # memory that another process wrote
    rm -rf sharing.trace
    "$CLIO" record --check-memory -o sharing.trace -- "$("$TOP/tests/guest" build sharing-o2)" >/dev/null 2>&1
    "$CLIO" replay -a sharing.trace >/dev/null 2>sharing.err
    [ $? = 1 ] && said sharing.err "memory differs from the recording's: 0x"
}
check "shared memory written by another process is named" missed

refused() {
    "$CLIO" record --check-memory="$1" -o no.trace -- true 2>no.err
    [ $? = 2 ] && said no.err "--check-memory=$1"
}
check "no events is no interval" refused 0
check "neither is a word" refused often
