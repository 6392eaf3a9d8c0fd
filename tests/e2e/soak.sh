#!/usr/bin/env bash
# Random schedules of forks, signals, timers, pipes and maps (soak.c), recorded and replayed. CLIO_SOAK is the number of
# seconds (15), CLIO_SEED the first seed.
. "$(dirname "$0")/lib.sh"

program=$BUILD/tests/soak
mkdir -p "$BUILD/tests"
[ "$TOP/tests/e2e/soak.c" -nt "$program" ] && { gcc -D_GNU_SOURCE -O2 -g -Wall -Wextra -o "$program" "$TOP/tests/e2e/soak.c" || exit 1; }

seed=${CLIO_SEED:-$((RANDOM * 32768 + RANDOM))}
until=$((SECONDS + ${CLIO_SOAK:-15}))
n=0 bad=0
while [ $SECONDS -lt $until ] && [ $bad -lt 5 ]; do
    rm -rf t
    timeout 60 "$CLIO" record -o t -- "$program" $seed 150 >t.out 2>t.err
    status=$?
    n=$((n + 1))
    if [ $status != 0 ]; then
        echo "seed $seed: recording ended with status $status"
        tail -3 t.out
        head -3 t.err
        bad=$((bad + 1))
    else
        for r in 1 2; do
            timeout 60 "$CLIO" replay -a t >t.out2 2>t.err2
            status=$?
            if [ $status != 0 ] || ! cmp -s t.out t.out2; then
                echo "seed $seed: replay $r ended with status $status"
                head -6 t.err2
                diff t.out t.out2 | head -3
                mv t "t.$seed.$r"
                bad=$((bad + 1))
                break
            fi
        done
    fi
    seed=$((seed + 1))
done
check "random programs: $n (up to seed $((seed - 1)))" test $bad = 0 -a $n -gt 0
