#!/usr/bin/env bash
# A trace that is still growing can be read; recordings share what they map; a mapped file may change afterwards.
. "$(dirname "$0")/lib.sh"

"$CLIO" record -o grow -- sh -c 'i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; ls /dev >/dev/null; sleep 0.1; done' >grow.out 2>grow.err &
recorder=$!
last=0 bad=0
for _ in 1 2 3 4 5; do
    sleep 0.3
    for c in ps info dump "info --json" "dump --json"; do
        timeout 20 "$CLIO" $c grow >live.out 2>live.err || { echo "$c of a growing trace: status $?"; head -3 live.err; bad=$((bad + 1)); }
    done
    now=$("$CLIO" dump grow 2>/dev/null | wc -l)
    [ "$now" -gt "$last" ] || { echo "dump did not grow: $last, then $now lines"; bad=$((bad + 1)); }
    last=$now
done
"$CLIO" ls >live.out 2>live.err || bad=$((bad + 1))
timeout 100 "$CLIO" replay -a grow >live.out2 2>live.err2 &
replayer=$!
sleep 1
check "a replay begins while the recording goes on" test -s live.out2
touch stop
wait $recorder
check "reading while recording" test $bad = 0
wait $replayer
check "and follows it to its end" test $? = 0 && check "every line" same_file grow.out live.out2
timeout 60 "$CLIO" replay -a grow >grow.out2 2>/dev/null
check "a second replay" same_file grow.out grow.out2

# ---- ten recordings
for i in 1 2 3 4 5 6 7 8 9 10; do "$CLIO" record -- sh -c "echo $i; ls / >/dev/null" >ten.$i; done
check "ten traces" test "$("$CLIO" ls 2>/dev/null | grep -c 'sh -c\|/sh\|dash')" -ge 10
size=$(du -sk "$CLIO_TRACE_DIR" | cut -f1)
one=$(du -sk --apparent-size -L "$(readlink -f "$CLIO_TRACE_DIR/latest")/files" 2>/dev/null | cut -f1)
check "share their libraries ($size KiB in all, ${one:-?} KiB of files in one)" test "$size" -lt $((${one:-0} * 2 + 3000))
"$CLIO" replay -a >ten.out
check "the latest is the default" same_file ten.10 ten.out
"$CLIO" rm "$(readlink -f "$CLIO_TRACE_DIR/latest")"
check "rm" test $? = 0 -a "$("$CLIO" ls 2>/dev/null | grep -c 'sh -c\|/sh\|dash')" = 9

# ---- private to their owner
find "$CLIO_TRACE_DIR" grow -maxdepth 1 -type d -perm /077 >open.dirs
check "trace directories are private" test ! -s open.dirs || cat open.dirs

# ---- a mapped program and library that change, in place, after the recording
mkdir lib
echo 'int f(void) { return 41; }' >lib/f.c
echo 'int f(void); int printf(const char *, ...); int main(void) { printf("%d\n", f() + 1); return 0; }' >main.c
gcc -shared -fPIC -o lib/libf.so lib/f.c && gcc -o main main.c -Llib -lf -Wl,-rpath,"$PWD/lib"
"$CLIO" record -o changed -- ./main >changed.out
for f in main lib/libf.so; do
    dd if=/dev/zero of=$f bs=4096 count=4 conv=notrunc status=none
done
"$CLIO" replay -a changed >changed.out2 2>changed.err
check "files overwritten in place after recording" same_file changed.out changed.out2 || cat changed.err

# ---- what is meant for the guest does not reach the host
echo 'int getppid(void) { return 4242; }' >pre.c && gcc -shared -fPIC -o pre.so pre.c
LD_PRELOAD=$PWD/pre.so "$CLIO" record -o pre -- sh -c 'echo $PPID; env | grep LD_PRELOAD' >pre.out 2>pre.err
check "LD_PRELOAD reaches the guest" grep -q pre.so pre.out && check "and is used" grep -q 4242 pre.out
LD_LIBRARY_PATH=/nonexistent "$CLIO" record -o llp -- sh -c 'echo $LD_LIBRARY_PATH' >llp.out
check "LD_LIBRARY_PATH" test "$(cat llp.out)" = /nonexistent
env -i "$CLIO" record -o "$PWD/noenv" -- /usr/bin/env >noenv.out
check "an empty environment stays empty" test ! -s noenv.out || cat noenv.out
for t in pre llp noenv; do
    "$CLIO" replay -a $t >$t.out2 2>$t.err2
    check "replay of $t" same_file $t.out $t.out2
done
"$CLIO" record -o aslr --aslr -- sh -c 'cat /proc/self/maps' >aslr.out
"$CLIO" replay -a aslr >aslr.out2
check "--aslr" same_file aslr.out aslr.out2
# /proc/self, by programs that do not know us
"$CLIO" record -o self -- bash -c 'exec 3>&-; readlink /proc/self/exe; tr "\0" " " </proc/self/cmdline; cat /proc/self/comm; ls /proc/self/fd; cat /proc/self/maps; tr "\0" "\n" </proc/self/environ' >self.out
grep -v "$CLIO_TRACE_DIR\|^CLIO\|^BUILD\|^TOP\|^PWD\|^OLDPWD\|^_=" self.out | grep -q 'clio-\|engine'
check "nothing of the host in /proc/self" test $? = 1 || cat self.out
