#!/usr/bin/env bash
# A full disk: the guest pauses and goes on when there is room, or the recording ends with everything so far intact.
. "$(dirname "$0")/lib.sh"

mnt=$PWD/small
mkdir -p "$mnt"
# A disk of its own for each part: what a store that still ends holds open takes no room from the next.
small_disk() {
    umount -l "$mnt" 2>/dev/null
    mount -t tmpfs -o size=6m tmpfs "$mnt"
}
if ! small_disk 2>mount.err; then
    skip "a full disk" "cannot mount a tmpfs here: $(cat mount.err)"
    exit
fi
trap 'umount -l "$mnt"' EXIT
export CLIO_TRACE_DIR=$mnt/traces

# Incompressible input makes the trace grow by what the guest reads.
noisy='i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; head -c 100000 /dev/urandom >/dev/null; done; echo end'

timeout 60 "$CLIO" record -o "$mnt/t" -- sh -c "$noisy" >out 2>err &
recorder=$!
for ((i = 0; i < 100; i++)); do
    grep -q '^clio: ' err && break
    kill -0 $recorder 2>/dev/null || break
    sleep 0.1
done
check "the full disk is said" said err "[Nn]o space\|full"
lines=$(wc -l <out)
sleep 1
if kill -0 $recorder 2>/dev/null; then
    check "the guest stands still" test "$(wc -l <out)" = "$lines" -a "$lines" -lt 200
    mount -o remount,size=100m "$mnt"
    wait $recorder
    check "and goes on when there is room" test $? = 0 -a "$(tail -1 out)" = end
else
    wait $recorder
    check "the recording ended" test $? != 0
fi
timeout 60 "$CLIO" replay -a "$mnt/t" >out2 2>err2
check "everything so far replays" test $? = 0 && check "every line" same_file out out2

# Full, and asked to end.
small_disk
rm -f err # of before: what it says must not be taken for what comes
timeout 60 "$CLIO" record -o "$mnt/u" -- sh -c "$noisy" >out 2>err &
recorder=$!
for ((i = 0; i < 100; i++)); do grep -qs '^clio: ' err && break; sleep 0.1; done
kill -TERM $recorder
wait $recorder
check "a recording on a full disk can be ended" test $? != 124
timeout 60 "$CLIO" replay -a "$mnt/u" >out2 2>err2
check "what there is replays" test $? = 0 || head -3 err2
check "the beginning" cmp -s <(head -c "$(stat -c %s out2)" out) out2

# No room at all to begin with.
small_disk
head -c 5800000 /dev/zero >"$mnt/filler"
timeout 20 "$CLIO" record -o "$mnt/v" -- echo never >out 2>err
check "no room to begin" test $? = 3 && check "is said" said err "$mnt\|space\|full"
