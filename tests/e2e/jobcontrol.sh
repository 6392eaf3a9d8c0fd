#!/usr/bin/env bash
# Job control of an interactive shell on a terminal, under record and without, and its replay.
. "$(dirname "$0")/lib.sh"

mkdir -p "$BUILD/tests"
pty=$BUILD/tests/pty
[ "$TOP/tests/e2e/pty.c" -nt "$pty" ] && { gcc -D_GNU_SOURCE -O1 -Wall -Wextra -o "$pty" "$TOP/tests/e2e/pty.c" -lutil || exit 1; }

cat >script <<'S'
expect ready>
send sleep 100
pause 300
key \x1a
expect Stopped
expect ready>
send jobs
expect sleep 100
expect ready>
send bg
expect sleep 100
expect ready>
send sleep 0.4 | cat &
expect ready>
send fg %1
pause 300
key \x03
expect ready>
send wait; echo status $?
expect status 0
expect ready>
send cat
pause 200
send typed by hand
expect typed by hand
key \x04
expect ready>
send echo $((6 * 7)) columns $COLUMNS; stty size
expect 42 columns 80
expect 24 80
expect ready>
send kill -INT $$; echo survived
expect survived
expect ready>
send tty >/dev/null && echo a terminal; test -t 0 -a -t 1 && echo both
expect both
expect ready>
send exit 17
S
start() { # start NAME COMMAND...
    local name=$1
    shift
    PS1='ready> ' HISTFILE='' timeout 60 "$pty" "$@" bash --norc --noprofile -i <script >"$name" 2>"$name.err"
}

start native env TERM=dumb
check "job control, natively" test $? = 17 || cat native.err
start recorded env TERM=dumb "$CLIO" record -o t.trace --
check "job control, recorded" test $? = 17 || { cat recorded.err; tail -5 recorded; }
"$CLIO" replay -a t.trace >replayed 2>replay.err </dev/null
check "replayed" test $? = 0 || cat replay.err
check "what it printed" grep -aq '42 columns 80' replayed

# ^C at a recorded program ends it as it would alone, and the recording with it
printf 'expect ready\npause 200\nkey \\x03\n' >interrupt
timeout 30 "$pty" "$CLIO" record -o i.trace -- sh -c 'trap "echo caught int; exit 3" INT; echo ready; while :; do sleep 0.1; done' <interrupt >i.out
got=$?
check "^C is the guest's" test $got = 3 || { echo "status $got"; cat i.out; "$CLIO" dump i.trace | tail -5; }
check "who caught it" grep -q 'caught int' i.out
timeout 30 "$pty" "$CLIO" record -o j.trace -- sh -c 'echo ready; while :; do sleep 0.1; done' <interrupt >j.out
got=$?
check "^C kills a guest that does not catch it" test $got = 130 || { echo "status $got"; cat j.out; "$CLIO" dump j.trace | tail -5; }
printf 'expect ready\npause 200\nkey \\x1c\n' >interrupt
timeout 30 "$pty" "$CLIO" record -o q.trace -- sh -c 'echo ready; while :; do sleep 0.1; done' <interrupt >q.out
got=$?
check "^\\ too" test $got = 131 || { echo "status $got"; cat q.out; "$CLIO" dump q.trace | tail -5; }
for t in i j q; do
    "$CLIO" replay -a $t.trace >/dev/null 2>$t.err
    check "replay of $t" test $? = 0 || cat $t.err
done
