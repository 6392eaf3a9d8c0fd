#!/usr/bin/env bash
# The commands that read and remove traces: ps, ls, info, dump, verify, rm, on good, odd and foreign directories.
. "$(dirname "$0")/lib.sh"
export CLIO_TRACE_DIR=$here/home HOME=$here

status_is() { # status_is STATUS COMMAND...
    local want=$1 got
    shift
    "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$want" ] || { echo "status $got, not $want, of: $*"; head -3 out err; return 1; }
}

refused() { # refused STATUS TEXT ARGUMENTS...: one line of clio with TEXT
    local want=$1 text=$2
    shift 2
    status_is "$want" timeout 20 "$CLIO" "$@" && said err "$text"
}

check "ls without traces" status_is 0 "$CLIO" ls
check "ps without traces" refused 3 "no trace yet" ps
"$CLIO" record sh -c 'true & cat /dev/null | cat; kill -SEGV $$' >/dev/null 2>&1
"$CLIO" record /bin/echo one >/dev/null 2>&1

check "ls shows both" status_is 0 "$CLIO" ls
check "... by name" grep -q '^echo-0 .*one$' out
check "ps shows the tree" status_is 0 "$CLIO" ps sh-0
check "... its death" grep -q 'root .*killed by SIGSEGV' out
check "... its children" grep -q 'exec .*exited with status 0 *cat$' out
check "latest is the last" status_is 0 "$CLIO" ps
check "... echo" grep -q 'echo one$' out
check "info" status_is 0 "$CLIO" info sh-0
check "... names the kernel" grep -q "^host .*$(uname -r)" out
check "info --json" status_is 0 "$CLIO" info --json sh-0
check "... is JSON" python3 -c 'import json, sys; d = json.load(open("out")); assert d["spaces"][0]["status"] == 11'
check "dump --json" status_is 0 "$CLIO" dump --json sh-0
check "... is JSON lines, events in order" python3 -c '
import json
last = {}
for line in open("out"):
    d = json.loads(line)
    if "seq" in d:
        assert d["event"] == last.get(d["space"], 0) + 1, d
        last[d["space"]] = d["event"]
assert len(last) >= 4'
check "dump of kinds" status_is 0 "$CLIO" dump sh-0 exec exit
check "... only those" sh -c '! grep -qvE "^[0-9]+ +[0-9]+ (exec|exit) " out && [ -s out ]'
check "zeros that a call sets are not stored" sh -c '"$CLIO" record -o zeros head -c 100000 /dev/zero >/dev/null &&
    "$CLIO" dump zeros syscall | grep -q "read = .*+[0-9]*=0$" && [ "$("$CLIO" dump zeros data | wc -c)" -lt 20000 ]'
"$CLIO" rm zeros
check "dump of one space" status_is 0 "$CLIO" dump --space 2 sh-0
check "... only that" sh -c '! grep -qv "^2 " out && [ -s out ]'
check "verify" status_is 0 "$CLIO" verify sh-0
check "a full disk for the output" sh -c '"$CLIO" dump sh-0 >/dev/full 2>err; [ $? = 3 ]'
check "a reader that leaves" sh -c '"$CLIO" dump sh-0 2>err | head -1 | grep -q root'

check "no command" refused 2 "no command"
check "unknown command" refused 2 "unknown command .frobnicate" frobnicate
check "unknown trace" refused 3 "nosuch: no such trace" info nosuch
check "unknown kind" refused 2 "bogus. is no kind" dump sh-0 bogus
check "unknown space" refused 3 "no space 77" dump --space 77 sh-0
check "space that is none" refused 2 "not .x" dump --space x
check "unknown option" refused 2 "unknown option --nope" dump --nope
check "empty name" refused 2 "empty name" ps ""
check "no home" sh -c 'env -u HOME -u CLIO_TRACE_DIR -u XDG_DATA_HOME "$CLIO" ps 2>err; [ $? = 2 ] && grep -q "nowhere to keep" err'

cp -r home/sh-0 home/bent
printf '\377\376' | dd of=home/bent/spaces/1/events bs=1 seek=300 conv=notrunc 2>/dev/null
check "verify finds damage" status_is 1 "$CLIO" verify bent
check "... and names it" grep -q '^damaged: .*spaces/1/events: frame 0 at offset 64' out
check "dump names it" refused 3 "spaces/1/events: frame 0 at offset 64" dump bent
file=$(ls home/bent/files | head -1)
cp home/sh-0/spaces/1/events home/bent/spaces/1/events
cp --remove-destination home/bent/files/"$file" changed && chmod u+w changed && printf x >>changed && mv -f changed home/bent/files/"$file"
check "verify finds a changed file" status_is 1 "$CLIO" verify bent
check "... and names it" grep -q "^damaged: files/$file .*changed after recording" out

mkdir -p foreign/trace foreign/files
echo precious | tee foreign/files/a foreign/trace/b >foreign/c
check "rm refuses what is no trace" refused 3 "not a trace; nothing was removed" rm "$here/foreign"
mkdir -p mine && echo precious >mine/trace
check "rm refuses a file of that name" refused 3 "not a trace; nothing was removed" rm "$here/mine"
mkdir -p other && : >other/trace && echo precious >other/files
check "rm refuses an empty header beside other files" refused 3 "not a trace; nothing was removed" rm "$here/other"
check "... and touches nothing" sh -c '[ "$(cat foreign/files/a foreign/trace/b foreign/c mine/trace other/files | sort | uniq -c | tr -s " ")" = " 5 precious" ]'
cp -r home/sh-0 home/kept && echo precious >home/kept/notes
ln -s "$here/foreign" home/kept/spaces/link
check "rm keeps what is not the trace's" refused 3 "but not the directory" rm kept
check "... there and behind links" sh -c '[ -s home/kept/notes ] && [ -s foreign/c ] && [ "$(ls home/kept)" = notes ]'
check "rm of an unknown trace" refused 3 "no such trace" rm nosuch
check "rm without names" refused 2 "rm TRACE" rm

"$CLIO" record -o "$here/live" -- sleep 30 2>/dev/null &
recorder=$!
for i in 1 2 3 4 5 6 7 8 9 10; do "$CLIO" ps "$here/live" 2>/dev/null | grep -q alive && break; sleep 0.3; done
check "rm refuses a live trace" refused 3 "is being recorded" rm "$here/live"
kill "$recorder"
wait "$recorder" 2>/dev/null

check "rm" status_is 0 "$CLIO" rm echo-0 bent "$here/live"
check "latest moved on" sh -c '"$CLIO" info 2>&1 | grep -q "^trace .*sh-0"'
check "the rest still verifies" status_is 0 "$CLIO" verify sh-0
check "rm of the last" status_is 0 "$CLIO" rm sh-0
check "the pool is empty" sh -c '[ "$(ls home/pool)" = identities ]'
