#!/usr/bin/env bash
# Chronicles of real recordings: every store is in them, and they name the culprit.
. "$(dirname "$0")/lib.sh"
sources=$TOP/tests/e2e/chronicle

line_of() { grep -n "$2" "$sources/$1" | cut -d: -f1; }

# says FILE TEXT...: FILE contains each TEXT
says() {
    local file=$1 text
    shift
    for text; do
        grep -qF -- "$text" "$file" || { echo "no '$text' in $file:"; cat "$file"; return 1; }
    done
}

# asks WHAT STATUS ARGUMENTS... -- TEXT...: clio query ends with STATUS and its output has each TEXT
asks() {
    local what=$1 want=$2 got arguments=()
    shift 2
    while [ "$1" != -- ]; do arguments+=("$1"); shift; done
    shift
    "$CLIO" query "${arguments[@]}" >answer 2>&1
    got=$?
    [ "$got" = "$want" ] || { echo "query ${arguments[*]}: status $got, wanted $want"; cat answer; echo "not ok $what"; return; }
    check "$what" says answer "$@"
}

# ---- every store
gcc -std=gnu11 -g -O1 -w -o stores "$sources/stores.c" -lm || { echo "not ok stores.c does not compile"; exit 1; }
record stores ./stores
"$CLIO" chronicle stores.trace -o stores.db >/dev/null
check "a chronicle of many stores" test $? = 0
read -r address length <<<"$(without_clio stores.err; cat stores.err.plain)"
check "memory is what was last written" python3 "$sources/compare.py" "$CLIO" stores.db "$address" "$length" stores.out

# ---- a crash
gcc -std=gnu11 -g -O0 -o crash "$sources/crash.c" || { echo "not ok crash.c does not compile"; exit 1; }
record crash ./crash <<<"hello, world"
check "it died by SIGSEGV" test "$status" = 139
read -r address <<<"$(without_clio crash.err; cat crash.err.plain)"
rm -f crash
"$CLIO" chronicle crash.trace -o crash.db >said
check "a chronicle of the crashed process" test $? = 0
asks "the crash" 0 crash.db crash -- "killed by SIGSEGV" "address 0xdeadbeef" "in main+" "crash.c:$(line_of crash.c 'dies here'))" rip
asks "the culprit" 0 crash.db last-write "$address" -- "a store of 8 bytes 0xdeadbeef" "in release_item+" \
    "crash.c:$(line_of crash.c culprit))" "before it"
moment=$(sed -n 's/.*written at \([0-9:]*\) by.*/\1/p' answer)
asks "and before it" 0 crash.db last-write "$address" --before "$moment" -- "in append+" "crash.c:$(line_of crash.c 'item->next = list'))"
asks "what a system call wrote" 0 crash.db last-write greeting+0+5 -- "by system call read = 13: 13 bytes at" "here 68 65 6c 6c 6f"
asks "a variable by name" 0 crash.db last-write '&stale' -- "in main+" "crash.c:$(line_of crash.c 'stale = list'))"
asks "its bytes afterwards" 1 crash.db first-write stale --after crash -- "nothing wrote"
asks "JSON" 0 crash.db last-write "$address" --json -- '"function": "release_item"' "\"moment\": \"$moment\""
check "is JSON" python3 -m json.tool answer /dev/null
asks "info" 0 crash.db info --json -- '"crash": true'

# ---- intervals and processes
"$CLIO" chronicle crash.trace --from "${moment%:*}" --to "$moment" -o short.db >/dev/null
check "up to the store" test $? = 0
asks "excludes it" 1 short.db last-write "$address" -- "nothing wrote"
"$CLIO" chronicle crash.trace --from end-100000 --to crash -o late.db >/dev/null
check "the last stretch" test $? = 0
asks "has the culprit" 0 late.db last-write "$address" -- "in release_item+"
asks "a moment before the interval" 2 late.db last-write "$address" --before 2 -- "outside of its interval"
child=$("$CLIO" ps crash.trace | awk '/fork/ && /status 7/ { print $1 }')
"$CLIO" chronicle crash.trace --space "$child" -o child.db >/dev/null
check "the child's chronicle" test $? = 0
asks "what the child wrote" 0 child.db last-write greeting -- "in child+" "here 66 72" 
"$CLIO" chronicle crash.trace --space 99 -o none.db 2>said
check "no such space" test $? = 2
"$CLIO" chronicle crash.trace --space "$child" --to crash -o none.db 2>said
check "a process that did not crash" test $? = 1
check "says so" said said "did not crash"
check "leaves nothing" test ! -e none.db
