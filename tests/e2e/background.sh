#!/usr/bin/env bash
# What a recorded program leaves behind: record returns with it, daemons stay recorded in the background, `clio stop`
# ends them, and whatever ends them leaves a trace that replays.
. "$(dirname "$0")/lib.sh"

until_true() { # until_true COMMAND...: polls for up to 30 seconds
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" && return 0
        sleep 0.05
    done
    echo "never came true: $*"
    return 1
}
live() { "$CLIO" info --json "$1" | grep -q '"live": true'; }
not_live() { ! live "$1"; }
holds() { grep -aq -- "$2" "$1" 2>/dev/null; } # holds FILE TEXT
recorders() { # recorders MARK [EXE]: processes of a recording by its mark in the environment
    local p
    for p in $(grep -lzFx "CLIO_BACKGROUND=$1" /proc/[0-9]*/environ 2>/dev/null); do
        case $(readlink "${p%/environ}/exe" 2>/dev/null) in */"$2" | */"$2 (deleted)") p=${p%/environ} && echo "${p#/proc/}" ;; esac
    done
}
no_guests() { [ -z "$(recorders "$$.$1" clio-engine)" ]; } # no_guests NAME
background() { # background NAME COMMAND...: records as `record` does; its processes carry the mark NAME
    local name=$1
    export CLIO_BACKGROUND=$$.$name
    record "$@"
    unset CLIO_BACKGROUND
}

cat >daemon <<'D'
use POSIX;
my ($file, $ignore) = @ARGV;
exit 0 if fork;
POSIX::setsid();
exit 0 if fork;
POSIX::close($_) for 0 .. 255;
chdir "/";
$SIG{TERM} = $ignore ? "IGNORE" : sub { open my $f, ">>", $file; syswrite $f, "got TERM\n"; exit 0 };
open my $f, ">", $file;
syswrite $f, "daemon of " . getppid() . "\n";
while (!-e "$file.end") { select undef, undef, undef, 0.05 }
syswrite $f, "daemon ends\n";
D
daemon="$PWD/daemon"

# ---- the record command returns with its program, and says what goes on
background a sh -c "perl $daemon $PWD/a.file; echo started; exit 5"
check "record returns with its program" test "$status" = 5 -a "$(cat a.out)" = started
check "and says who goes on, and how to end it" said a.err "1 process .*\`clio stop .*a.trace\`"
until_true holds a.file "daemon of" || cat a.err
check "info shows that it is still being recorded" sh -c "'$CLIO' info a.trace | grep -q 'not yet.*1 process'"
check "ps, too" sh -c "'$CLIO' ps a.trace | grep -q alive"
check "in machine-readable form" live a.trace
"$CLIO" rm a.trace 2>rm.err
check "it is not removed" test $? = 3 -a -e a.trace/trace
"$CLIO" stop a.trace 2>stop.err
check "clio stop" test $? = 0 || cat stop.err
check "the daemon was asked first" holds a.file "got TERM"
check "nothing is being recorded any more" not_live a.trace
check "replays" replays a
"$CLIO" verify a.trace >verify.out 2>&1
check "and verifies" test $? = 0 || cat verify.out
"$CLIO" stop a.trace 2>stop.err
check "stopping it again" test $? = 1 && said stop.err a.trace

background b perl daemon "$PWD/b.file"
until_true holds b.file "daemon of"
touch b.file.end
check "a daemon that ends by itself ends the recording" until_true not_live b.trace
check "it did what it does" holds b.file "daemon ends"
check "and replays" replays b

background c perl daemon "$PWD/c.file" ignore
until_true holds c.file "daemon of"
"$CLIO" stop c.trace
check "a daemon that ignores SIGTERM is stopped" test $? = 0 && check "without another word" test "$(wc -l <c.file)" = 1
check "its trace replays" replays c

# ---- several, in sessions and groups of their own, stopped, orphaned later
background many bash -c 'for i in 1 2 3; do setsid sh -c "sleep 1000; :" >/dev/null 2>&1 & done; (sleep 1000 & sh -c "kill -STOP \$PPID" & exec sleep 1000) & sleep 0.3; kill -STOP $!; exit 0'
check "many" test "$status" = 0
"$CLIO" stop many.trace
check "all are stopped" test $? = 0 -a -z "$("$CLIO" ps many.trace | grep alive)"
"$CLIO" replay -a many.trace >many.out2 2>many.err2
check "and replay" test $? = 0

# ---- --wait
"$CLIO" record --wait -o w.trace -- sh -c '(sleep 0.5; echo late) & echo early; exit 4' >w.out 2>w.err
check "record --wait waits for all" test $? = 4 -a "$(paste -sd' ' w.out)" = "early late" -a ! -s w.err
check "and replays" replays w
"$CLIO" record --wait -o v.trace -- sh -c 'trap "" TERM; sleep 1000 & echo $!; exit 4' >v.out 2>v.err &
recorder=$!
until_true holds v.out '[0-9]'
kill -TERM $recorder
wait $recorder
check "SIGTERM ends it, whatever the rest thinks of it" test $? = 4 && check "closed" not_live v.trace
check "and replays" replays v

# ---- stop while the program runs
for who in '' 'trap "echo caught; exit 9" TERM;'; do
    rm -rf s.*
    "$CLIO" record -o s.trace -- sh -c "$who sleep 1000 & echo ready; wait" >s.out 2>s.err &
    recorder=$!
    until_true holds s.out ready
    "$CLIO" stop s.trace
    check "clio stop while record runs" test $? = 0
    wait $recorder
    check "record returns what became of its program" test $? = "${who:+9}" -o $? = "${who:-143}"
    check "and it replays" replays s
done

# ---- a pipe that the daemon has closed ends with the program
"$CLIO" record -o p.trace -- sh -c 'sleep 1000 >/dev/null 2>&1 </dev/null & echo piped' 2>&1 | cat >p.out
check "nobody else holds stdout" holds p.out piped
"$CLIO" stop p.trace

# ---- a replay follows it
background f sh -c 'while [ ! -e end ]; do echo line; sleep 0.05; done & echo first'
"$CLIO" replay -a f.trace >f.out2 2>f.err2 &
replayer=$!
until_true holds f.out2 line
touch end
wait $replayer
check "a replay follows a recording in the background to its end" test $? = 0
check "every line" same_file f.out f.out2

# ---- kills
background k sh -c 'trap "" TERM INT HUP; while :; do echo line; sleep 0.02; done & :'
killed=$(recorders $$.k clio)
check "the recorder in the background" test "$(wc -w <<<"$killed")" = 1
kill -KILL $killed
check "killed: the rest dies with it" until_true no_guests k
check "and the store closes the trace" until_true not_live k.trace
"$CLIO" replay -a k.trace >k.out2 2>k.err2
check "which replays" test $? = 0
check "the beginning" cmp -s <(head -c "$(stat -c %s k.out2)" k.out) k.out2

background l sh -c 'i=0; while [ ! -e l.end ]; do i=$((i+1)); echo $i; sleep 0.02; done & :'
for _ in 1 2 3; do
    kill -KILL $(recorders $$.l clio-store)
    sleep 0.2
done
touch l.end
check "the store killed in the background, three times" until_true not_live l.trace
check "loses nothing" replays l

for sig in TERM INT HUP; do
    background "e$sig" perl -e 'exit 0 if fork; $| = 1; $SIG{$ARGV[0]} = sub { print "caught\n"; exit 0 }; print "ready\n"; sleep 1 while 1' $sig
    until_true holds "e$sig.out" ready
    kill -$sig $(recorders "$$.e$sig" clio)
    check "SIG$sig to the recorder in the background" until_true not_live "e$sig.trace"
    check "is passed on" holds "e$sig.out" caught
    check "and replays" replays "e$sig"
done

background g sh -c 'sleep 1000 & exit 0'
"$CLIO" stop g.trace & "$CLIO" stop g.trace & "$CLIO" stop g.trace & wait
check "stopped by several at once" not_live g.trace

# ---- the front killed while its program runs
CLIO_BACKGROUND=$$.h "$CLIO" record -o h.trace -- sh -c 'sleep 1000 & echo ready; wait' >h.out 2>h.err &
recorder=$!
until_true holds h.out ready
kill -KILL $recorder
wait $recorder 2>/dev/null
check "the front killed: the guests die" until_true no_guests h
check "the trace is closed" until_true not_live h.trace
check "and replays" replays h

# ---- on a terminal: the shell has its prompt while the daemon writes
pty=$BUILD/tests/pty
mkdir -p "$BUILD/tests"
[ "$TOP/tests/e2e/pty.c" -nt "$pty" ] && { gcc -D_GNU_SOURCE -O1 -Wall -Wextra -o "$pty" "$TOP/tests/e2e/pty.c" -lutil || exit 1; }
cat >script <<S
expect ready>
send $CLIO record -o t.trace -- sh -c '(while [ ! -e t.go ]; do sleep 0.05; done; echo from the back; sleep 1000) & echo in front; exit 6'
expect in front
expect ready>
send echo status \$?; touch t.go
expect status 6
expect from the back
send $CLIO stop t.trace; echo stopped \$?
expect stopped 0
expect ready>
send exit 17
S
PS1='ready> ' HISTFILE='' timeout 60 "$pty" env TERM=dumb bash --norc --noprofile -i <script >t.out 2>t.err
check "a daemon that keeps the terminal" test $? = 17 || cat t.out t.err
"$CLIO" replay -a t.trace >t.out2 2>t.err2
check "replays" test $? = 0 && check "both" holds t.out2 "from the back"
# the leader of a terminal's session goes: who is left in the foreground gets SIGHUP, as without us
printf 'pause 100\n' >script
for how in "" "$CLIO record -o u.trace --"; do
    rm -f u.file u.ready
    timeout 60 "$pty" $how sh -c '(trap "echo hangup >u.file; exit" HUP; : >u.ready; while :; do sleep 0.05; done) & while [ ! -e u.ready ]; do sleep 0.05; done; exit 0' <script >/dev/null 2>&1
    check "hangup when the session's leader ends${how:+, recorded}" until_true holds u.file hangup
done
check "which ends the recording" until_true not_live u.trace

# ---- the first process of a pid namespace has no background
if unshare -pf --mount-proc true 2>/dev/null; then
    unshare -pf --mount-proc "$CLIO" record -o n.trace -- sh -c 'sleep 1000 & echo pid one; exit 3' >n.out 2>n.err
    check "as process 1" test $? = 3
    check "the trace is complete" not_live n.trace && check "and replays" replays n
else
    skip "as process 1" "no pid namespaces with a /proc of their own here"
fi

# ---- whose recording it is
if [ "$(id -u)" = 0 ]; then
    base=$(mktemp -d /tmp/clio-background.XXXXXX)
    trap 'rm -rf "$base"' EXIT
    chmod 755 "$base" && mkdir "$base/home" && chown nobody "$base/home"
    make -s -C "$TOP" install PREFIX="$base/usr" >install.log 2>&1
    as_nobody() { su -s /bin/sh nobody -c "cd $base/home && $1" </dev/null; }
    as_nobody "$base/usr/bin/clio record -o $base/home/n -- sh -c 'sleep 1000 >/dev/null 2>&1 & exit 2' >/dev/null 2>err"
    check "nobody's daemon" test $? = 2 && check "recorded" live "$base/home/n"
    as_nobody "$base/usr/bin/clio stop $base/home/n" 2>stop.err
    check "stopped by nobody" test $? = 0 || cat stop.err
    as_nobody "$base/usr/bin/clio record -o $base/home/m -- sh -c 'sleep 1000 >/dev/null 2>&1 & exit 2' >/dev/null 2>err"
    "$CLIO" stop "$base/home/m" 2>stop.err
    check "stopped by root" test $? = 0 || cat stop.err
    chmod 755 . && background o sh -c 'sleep 1000 >/dev/null 2>&1 & exit 2'
    su -s /bin/sh nobody -c "$base/usr/bin/clio stop $PWD/o.trace" 2>stop.err </dev/null
    check "root's is not nobody's to stop" test $? = 3 && said stop.err o.trace
    check "and goes on" live o.trace
    "$CLIO" stop o.trace
else
    skip "other people's recordings" "needs root, to become nobody"
fi
