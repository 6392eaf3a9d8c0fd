#!/usr/bin/env bash
# stdin from files, pipes, closed; redirections; output through duplicates; another working directory.
. "$(dirname "$0")/lib.sh"

printf 'b\na\nc\n' >input

"$CLIO" record -o a.trace -- sort <input >a.out 2>a.err
check "stdin from a file" test $? = 0 -a "$(tr '\n' ' ' <a.out)" = "a b c "
seq 1 1000 | "$CLIO" record -o b.trace -- awk '{ s += $1 } END { print s }' >b.out
check "stdin from a pipe" test "$(cat b.out)" = 500500
"$CLIO" record -o c.trace -- cat <&- >c.out 2>c.err
check "stdin closed" test $? = 1
"$CLIO" record -o d.trace -- sh -c 'echo out; echo err >&2' >d.both 2>&1
check "stdout and stderr one file" test "$(tr '\n' ' ' <d.both)" = "out err "
"$CLIO" record -o e.trace -- sh -c 'echo lost; exit 3' >&-
check "stdout closed" test $? = 3
"$CLIO" record -o f.trace -- sh -c 'exec 5>&1; echo through five >&5; exec >file; echo not shown; exec >&5; echo shown' >f.out
check "duplicates of stdout" test "$(tr '\n' ' ' <f.out)" = "through five shown "
"$CLIO" record -o g.trace -- sh -c 'yes | head -1; yes' 2>g.err | head -3 >g.out
check "a reader that goes away" test "${PIPESTATUS[0]}" = 141 -o "${PIPESTATUS[0]}" = 1
mkdir -p elsewhere
(cd elsewhere && "$CLIO" record -o ../h.trace -- sh -c 'pwd; echo here >made; cat made') >h.out
check "another directory" grep -q elsewhere h.out
"$CLIO" record -o i.trace -- sh -c 'echo one; echo two >&2; echo three' >/dev/full 2>i.err
check "stdout full" test $? = 0 -o $? = 1
rm -rf input elsewhere file
for t in a b c f h; do
    "$CLIO" replay -a $t.trace >$t.out2 2>$t.err2 </dev/null
    check "replay of $t" test $? = 0 && check "its output" same_file $t.out $t.out2
done
"$CLIO" replay -a d.trace >d.both2 2>&1
check "replay keeps the order of stdout and stderr" same_file d.both d.both2
"$CLIO" replay -a e.trace >e.out2
check "replay of what had no stdout" test $? = 0
"$CLIO" replay -a f.trace | head -1 >f.head
check "replay into a reader that goes away" test "$(cat f.head)" = "through five"
