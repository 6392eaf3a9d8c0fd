#!/usr/bin/env bash
# Bad input: one clear line that names the thing, the right exit status, nothing lost.
. "$(dirname "$0")/lib.sh"

# wrong WHAT STATUS TEXT COMMAND...: COMMAND ends with STATUS and says one line with TEXT
wrong() {
    local what=$1 want=$2 text=$3 got lines
    shift 3
    timeout 20 "$@" >stdout 2>stderr </dev/null
    got=$?
    lines=$(wc -l <stderr)
    if [ "$got" = "$want" ] && said stderr "$text" && [ "$lines" -le 2 ]; then
        echo "ok $what"
    else
        echo "$what: status $got, wanted $want; $lines lines:"
        head -5 stderr
        echo "not ok $what"
    fi
}

"$CLIO" record -o good -- sh -c 'echo output; ls / >/dev/null; date >/dev/null; echo more' >good.out 2>good.err
check "a recording to spoil" test $? = 0

# ---- misuse
wrong "no command" 2 "" "$CLIO"
wrong "unknown command" 2 frobnicate "$CLIO" frobnicate
wrong "unknown option" 2 "--frobnicate" "$CLIO" record --frobnicate -- /bin/true
wrong "record without a program" 2 program "$CLIO" record
wrong "option without argument" 2 "-o" "$CLIO" record -o
wrong "unknown cpu level" 2 "v9" "$CLIO" record --cpu=v9 -- /bin/true
wrong "unknown log topic" 2 nonsense "$CLIO" record --log nonsense -- /bin/true
wrong "--wait takes nothing" 2 "--wait" "$CLIO" record --wait=5 -- /bin/true
wrong "record --wait without a program" 2 program "$CLIO" record --wait
wrong "stop: an option" 2 "--now" "$CLIO" stop --now
wrong "stop: two traces" 2 other "$CLIO" stop good other
wrong "stop: not being recorded" 1 good "$CLIO" stop good
wrong "query without a question" 2 "" "$CLIO" query good

# ---- programs
wrong "program not found" 3 no-such-program "$CLIO" record -o x1 -- no-such-program
wrong "path not found" 3 /no/such/program "$CLIO" record -o x2 -- /no/such/program
check "nothing is left of it" test ! -e x2
echo data >plain
wrong "not executable" 3 plain "$CLIO" record -o x3 -- ./plain
chmod +x plain
"$CLIO" record -o x4 -- ./plain >stdout 2>stderr
check "neither ELF nor #!: the shell's, as from a shell" grep -q 'plain.*data' stderr
head -c 200 /bin/true >cut && chmod +x cut
wrong "truncated program" 3 cut "$CLIO" record -o x5 -- ./cut
wrong "a directory" 3 /tmp "$CLIO" record -o x6 -- /tmp

# ---- where to
mkdir full && touch full/file
wrong "-o is there" 3 full "$CLIO" record -o full -- /bin/true
wrong "-o is a file" 3 plain "$CLIO" record -o plain -- /bin/true
wrong "-o below nothing" 3 nowhere "$CLIO" record -o nowhere/at/all -- /bin/true
wrong "-o below a file" 3 plain "$CLIO" record -o plain/x -- /bin/true
wrong "-o in /proc" 3 /proc "$CLIO" record -o /proc/x -- /bin/true

# ---- what to read
for c in "replay -a" dump ps info "info --json" verify "chronicle -o x.db" "dump --json" stop; do
    wrong "$c: missing" 3 missing "$CLIO" $c missing
    mkdir -p empty
    wrong "$c: empty directory" 3 empty "$CLIO" $c empty
    wrong "$c: a file" 3 plain "$CLIO" $c plain
done
wrong "query: missing" 3 missing "$CLIO" query missing crash
wrong "query: not a chronicle" 3 plain "$CLIO" query plain crash
: >empty.db
wrong "query: an empty file" 3 empty.db "$CLIO" query empty.db crash
CLIO_TRACE_DIR=$PWD/none wrong "no latest trace" 3 "" env CLIO_TRACE_DIR="$PWD/none" "$CLIO" replay -a
wrong "rm: missing" 3 missing "$CLIO" rm missing
wrong "rm: not a trace" 3 full "$CLIO" rm full
check "which is still there" test -e full/file

# ---- moments and addresses
for m in nonsense 12:x 1:2:3:4 -5 99999999 "" 1:99999999999 end-x 18446744073709551616; do
    wrong "moment '$m'" 2 "$m" "$CLIO" chronicle good --from "$m" --to end -o m.db
done
check "no database is left" test ! -e m.db
"$CLIO" chronicle good --from start --to end -o good.db 2>chronicle.err
if [ $? = 0 ]; then
    for a in nonsense 0xzz 1+x 0x1000+0 "" 0x10000000000000000; do
        wrong "address '$a'" 2 "$a" "$CLIO" query good.db last-write "$a"
    done
    wrong "never written" 1 0x10 "$CLIO" query good.db last-write 0x10
    wrong "unknown question" 2 frobnicate "$CLIO" query good.db frobnicate
    wrong "no crash" 1 "" "$CLIO" query good.db crash
    head -c $(($(stat -c %s good.db) / 2)) good.db >half.db
    wrong "half a chronicle" 3 half.db "$CLIO" query half.db last-write 0x1000
    wrong "-o is there" 3 good.db "$CLIO" chronicle good --from start --to end -o good.db
    wrong "from after to" 2 "" "$CLIO" chronicle good --from end --to start -o m.db
else
    cat chronicle.err
    echo "not ok chronicle of a whole run"
fi

# ---- another version
cp -r good version
sed -i '1s/clio trace [0-9]*/clio trace 999/' version/trace
for c in "replay -a" dump ps info verify "chronicle -o x.db" stop; do
    wrong "$c: another version" 3 999 "$CLIO" $c version
done

# ---- the directory is not ours to write
if [ "$(id -u)" != 0 ]; then
    mkdir ro && chmod 555 ro
    wrong "-o below a read-only directory" 3 ro "$CLIO" record -o ro/x -- /bin/true
else
    skip "-o below a read-only directory" "root may write everywhere"
fi
"$CLIO" replay -a good >good.out2 2>good.err2
check "the good one still replays" same_file good.out good.out2
