#!/usr/bin/env bash
# Truncated and damaged traces: a bad frame is named, what is before it replays, nothing crashes.
. "$(dirname "$0")/lib.sh"

"$CLIO" record -o good -- sh -c 'i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done; ls -l /bin >/dev/null; date >/dev/null' >good.out 2>good.err
check "a recording to spoil" test $? = 0
"$CLIO" verify good >/dev/null 2>&1
check "verify of a good trace" test $? = 0

# All commands end with a status of the design and within 20 seconds; what replay prints is a beginning of the output.
survives() { # survives TRACE
    local c got
    for c in "replay -a" dump ps info verify; do
        timeout 20 "$CLIO" $c "$1" >out 2>err </dev/null
        got=$?
        case $got in
        0 | 1 | 3) ;;
        *)
            echo "clio $c: status $got"
            tail -3 err
            return 1
            ;;
        esac
        if [ "$got" != 0 ] && ! grep -q . err && ! { [ "$c" = verify ] && grep -q . out; }; then
            echo "clio $c: status $got and not a word"
            return 1
        fi
        if [ "$c" = "replay -a" ] && ! cmp -s <(head -c "$(stat -c %s out)" good.out) out; then
            echo "replay printed what the program had not:"
            diff out good.out | head -5
            return 1
        fi
    done
}

# Every file of the trace (but the mapped files themselves), cut at six places and at its last bytes.
bad=0 n=0
while read -r f; do
    size=$(stat -c %s "good/$f")
    for at in 0 7 63 $((size / 3)) $((size * 3 / 4)) $((size - 1)); do
        [ "$at" -ge 0 ] && [ "$at" -lt "$size" ] || continue
        rm -rf t && cp -r good t
        truncate -s "$at" "t/$f"
        n=$((n + 1))
        survives t || { echo "$f cut to $at bytes of $size"; bad=$((bad + 1)); }
    done
done < <(cd good && find . -type f -size +0 ! -path './files/*' ! -path './rings/*' | sort)
check "traces cut at $n places" test "$bad" = 0 -a "$n" -gt 20

bad=0 n=0
RANDOM=${CLIO_SEED:-4711}
while read -r f; do
    size=$(stat -c %s "good/$f")
    for _ in 1 2 3; do
        rm -rf t && cp -r good t
        at=$((RANDOM * 32768 + RANDOM))
        at=$((at % size))
        byte=$(od -An -tu1 -j$at -N1 "t/$f")
        # shellcheck disable=SC2059
        printf "\\x$(printf %02x $((byte ^ (1 << RANDOM % 8))))" | dd of="t/$f" bs=1 seek=$at conv=notrunc status=none
        n=$((n + 1))
        survives t || { echo "$f with a flipped bit at $at"; bad=$((bad + 1)); }
        case $f in */events | */data | */maps | ./tasks)
            timeout 20 "$CLIO" verify t >out 2>err
            if [ $? != 1 ] || ! grep -q "${f#./}" out err; then
                echo "verify did not name $f with a flipped bit at $at:"
                head -3 out err
                bad=$((bad + 1))
            fi
            ;;
        esac
    done
done < <(cd good && find . -type f -size +0 ! -path './files/*' ! -path './rings/*' | sort)
check "$n flipped bits" test "$bad" = 0 -a "$n" -gt 10

# A captured file that is gone or changed.
rm -rf t && cp -r good t
victim=$(find t/files -type f | head -1)
if [ -n "$victim" ]; then
    rm -f "$victim"
    timeout 20 "$CLIO" replay -a t >out 2>err
    check "a captured file that is gone is named" grep -q "files/\|$(basename "$victim" | cut -c1-12)" err
fi
"$CLIO" replay -a good >good.out2 2>/dev/null
check "the good one still replays" same_file good.out good.out2
