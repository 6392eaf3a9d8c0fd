#!/usr/bin/env bash
#
# tests/fuzz/translate.sh [--seed N] [--runs N] [--seconds N]
#
# Random programs (fuzz_translate.c, translate_guest.c) that print the state they see at many points: run natively, recorded and
# replayed, each also with --single-block; interrupted by a timer, recorded and replayed in both block shapes; and built
# into a chronicle, whose last writes must be what memory holds at the end. Without options: seeds 1 to 6, or with CLIO_FUZZ=N
# random seeds for N seconds. What a failing seed left is kept in ./seed-N.
set -u
: "${TOP:=$(cd "$(dirname "$0")/../.." && pwd)}" "${CLIO:=$TOP/clio}"

seed=1 runs=6 seconds=''
if [ -n "${CLIO_FUZZ-}" ]; then seed=$((RANDOM * 32768 + RANDOM)) runs='' seconds=$CLIO_FUZZ; fi
while [ $# -ge 2 ]; do
    case $1 in
    --seed) seed=$2 ;;
    --runs) runs=$2 seconds='' ;;
    --seconds) seconds=$2 runs='' ;;
    *) break ;;
    esac
    shift 2
done
[ $# = 0 ] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

if [ -z "${CLIO_TEST_JOB-}" ]; then # by hand
    mkdir -p "$TOP/build/fuzz-translate" && cd "$TOP/build/fuzz-translate" || exit 1
fi

compile="${CC:-gcc} -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -O1"
if ! $compile -o fuzz_translate "$TOP/tests/fuzz/fuzz_translate.c" ||
    ! $compile -g -fno-pie -c -o translate_guest.o "$TOP/tests/fuzz/translate_guest.c"; then
    echo "not ok fuzz_translate does not build"
    exit 1
fi

# run NAME COMMAND...: output in NAME, messages in NAME.err, the last bytes of arena and stack in NAME.arena, NAME.stack
run() {
    local to=$1
    shift
    timeout 100 "$@" >"$to" 2>"$to.err" 51>"$to.arena" 52>"$to.stack"
}

# same WHAT EXPECTED FOUND STATUS
same() {
    [ "$4" = 0 ] && cmp -s "$2" "$3" && return
    echo "seed $seed: $1: status $4"
    tail -n 12 "$3.err"
    diff "$2" "$3" | head -4
    return 1
}

# Recorded in one block shape, against the native run: as it is, or with a timer, which must not change the sum at the end.
record_shape() { # record_shape SHAPE TRACE [async]
    # shellcheck disable=SC2086
    run "record$1" "$CLIO" record --cpu=v3+adx $1 -o "$PWD/$2$1" -- ./program "$rounds" ${3-}
    local status=$?
    if [ -n "${3-}" ]; then
        tail -n 1 "record$1" >last
        cp "record$1.err" last.err
        same "record $1 async" native.last last $status
    else
        same "record $1" native "record$1" $status &&
            same "record $1, the arena" native.arena "record$1.arena" 0 &&
            same "record $1, the stack" native.stack "record$1.stack" 0
    fi
}

replay_shape() { # replay_shape SHAPE TRACE OUTPUT
    # shellcheck disable=SC2086
    run replay "$CLIO" replay -a $1 "$PWD/$2"
    same "replay $1 of $2" "$3" replay $?
}

recorded() { # recorded TRACE [async]
    local bad=0
    record_shape "" "$@" || bad=1
    record_shape --single-block "$@" || bad=1
    replay_shape "" "$1" record || bad=1
    replay_shape --single-block "$1" record || bad=1
    replay_shape "" "$1--single-block" record--single-block || bad=1
    return $bad
}

chronicle() {
    "$CLIO" chronicle "$PWD/plain" --from start --to end -o db >chronicle.out 2>&1 ||
        { echo "seed $seed: chronicle: status $?"; head -n 3 chronicle.out; return 1; }
    "$CLIO" chronicle "$PWD/timer" --from start --to end -o timer.db >chronicle.out 2>&1 ||
        { echo "seed $seed: chronicle of timer: status $?"; head -n 3 chronicle.out; return 1; }
    last_writes 0x9000000 8192 native.arena && last_writes 0x9c0e000 4096 native.stack
}

last_writes() { # last_writes ADDRESS SIZE FILE
    "$CLIO" query db last-write "$1+$2" --json >answer 2>&1 || { echo "seed $seed: query: status $?"; return 1; }
    ../fuzz_translate check "$3" "$1" <answer >wrong && return
    echo "seed $seed: the chronicle's last writes"
    tail -n 2 wrong
    return 1
}

one_seed() {
    local bad=0
    rounds=$((1 + seed % 4))
    ../fuzz_translate "$seed" >program.s &&
        ${CC:-gcc} -static -no-pie -Wl,--no-warn-rwx-segments -o program ../translate_guest.o program.s || return 1
    run native ./program "$rounds"
    local status=$?
    [ $status != 10 ] || return 0 # a program that ran into too many faults
    [ $status = 0 ] || { echo "seed $seed: natively: status $status"; return 1; }
    tail -n 1 native >native.last
    recorded plain || bad=1
    recorded timer async || bad=1
    chronicle || bad=1
    return $bad
}

done=0 failed=0 end=$((SECONDS + ${seconds:-0}))
export CLIO_TRACE_DIR=$PWD/traces
while if [ -n "$seconds" ]; then [ "$SECONDS" -lt "$end" ]; else [ "$done" -lt "$runs" ]; fi; do
    rm -rf "seed-$seed" && mkdir "seed-$seed" && cd "seed-$seed" || exit 1
    if one_seed; then
        cd .. && rm -rf "seed-$seed"
    else
        cd .. && failed=$((failed + 1))
        echo "not ok translate seed $seed (kept in $PWD/seed-$seed; alone: tests/fuzz/translate.sh --seed $seed --runs 1)"
    fi
    seed=$((seed + 1)) done=$((done + 1))
done
[ $failed != 0 ] || echo "ok $done random programs"
[ $failed = 0 ]
