#!/usr/bin/env bash
# SIGKILL of random subsets of {guests, record's two processes, store} at random moments: each leaves a trace that replays with status
# 0, says where and why it ends, and prints a beginning of what the program printed; no guest outlives its recorder; a
# recording whose store is killed goes on. CLIO_KILLS is the number of rounds, CLIO_SEED the seed.
. "$(dirname "$0")/lib.sh"

RANDOM=${CLIO_SEED:-$$}
seed=$RANDOM
RANDOM=$seed
rounds=${CLIO_KILLS:-100}

cat >workload <<'W'
i=0
while [ $i -lt 100000 ]; do
    i=$((i + 1))
    echo "line $i"
    case $i in
    *00) expr $i + 1 >/dev/null ;;
    *50) (echo "child $i" | cat) ;;
    *25) : >file; read -r x <file ;;
    esac
done
W

processes_of() { # processes_of MARK [EXE]: numbers of the processes of one round, whose program is EXE
    local p
    for p in $(grep -lzFx "CLIO_KILL_ROUND=$1" /proc/[0-9]*/environ 2>/dev/null); do
        p=${p%/environ}
        [ $# = 1 ] || case $(readlink "$p/exe" 2>/dev/null) in */"$2" | */"$2 (deleted)") ;; *) continue ;; esac
        echo "${p#/proc/}"
    done
}

gone() { # gone MARK SECONDS: nothing of the round runs any more (twice in a row: an exec under way shows no mark)
    local i calm=0
    for ((i = 0; i < $2 * 20; i++)); do
        if [ -z "$(processes_of "$1")" ]; then calm=$((calm + 1)); else calm=0; fi
        [ $calm -lt 3 ] || return 0
        sleep 0.05
    done
    return 1
}

one_round() { # one_round NUMBER
    local n=$1 mark=$$.$1 recorder child guests store victims='' subset status cut
    export CLIO_KILL_ROUND=$mark
    rm -rf "k$n"*
    "$CLIO" record -o "k$n" -- sh ./workload >"k$n.out" 2>"k$n.err" &
    recorder=$!
    sleep "0.$(printf %03d $((RANDOM % 400)))"
    unset CLIO_KILL_ROUND
    guests=$(processes_of "$mark" clio-engine)
    child=$(processes_of "$mark" clio | grep -vx "$recorder")
    store=$(processes_of "$mark" clio-store)
    subset=$((RANDOM % 7 + 1))
    if [ $((subset & 1)) != 0 ]; then
        # all guests or one of them
        if [ $((RANDOM % 2)) = 0 ]; then victims="$guests"; else victims=$(shuf -n 1 <<<"$guests"); fi
    fi
    if [ $((subset & 2)) != 0 ]; then
        # what the shell started, the recorder proper, or both
        case $((RANDOM % 3)) in
        0) victims="$victims $recorder" ;;
        1) victims="$victims ${child:-$recorder}" ;;
        2) victims="$victims $recorder $child" ;;
        esac
    fi
    [ $((subset & 4)) = 0 ] || victims="$victims $store"
    # shellcheck disable=SC2086
    kill -KILL $victims 2>/dev/null
    if [ $((subset & 2)) = 0 ]; then
        sleep 0.1
        kill -TERM $recorder 2>/dev/null
    fi
    wait $recorder 2>/dev/null
    status=$?
    if ! gone "$mark" 10; then
        echo "round $n (subset $subset, status $status): left behind: $(processes_of "$mark")"
        for p in $(processes_of "$mark"); do kill -KILL "$p"; done
        return 1
    fi
    if [ ! -e "k$n" ]; then
        # killed before there was a directory: only a recorder can be that early
        [ ! -s "k$n.out" ] && return 0
        echo "round $n: output but no trace"
        return 1
    fi
    timeout 60 "$CLIO" replay -a "k$n" >"k$n.out2" 2>"k$n.err2"
    status=$?
    if [ $status != 0 ]; then
        if [ ! -s "k$n.out" ] && [ ! -s "k$n/tasks" ] && [ -z "$(find "k$n/rings" -size +1 2>/dev/null)" ]; then
            return 0 # no event had been published
        fi
        echo "round $n (subset $subset): replay ended with status $status:"
        head -5 "k$n.err2"
        return 1
    fi
    # what was printed is a beginning of what the guests printed, which lags behind by at most a call under way
    if ! cmp -s <(head -c "$(stat -c %s "k$n.out2")" "k$n.out") "k$n.out2"; then
        echo "round $n (subset $subset): replay printed something else"
        diff "k$n.out" "k$n.out2" | head -5
        return 1
    fi
    cut=$(grep -a '^clio: .* ends at ' "k$n.err2")
    if [ -z "$cut" ] && ! "$CLIO" ps "k$n" 2>/dev/null | grep -qi 'killed\|signal\|SIG'; then
        echo "round $n (subset $subset): no word of why it ends"
        cat "k$n.err2"
        return 1
    fi
    "$CLIO" info "k$n" >/dev/null 2>"k$n.err2" && "$CLIO" dump "k$n" >/dev/null 2>>"k$n.err2" || {
        echo "round $n (subset $subset): info or dump failed"
        head -3 "k$n.err2"
        return 1
    }
    [ ! -s "k$n.out2" ] || useful=$((useful + 1))
    rm -rf "k$n"*
}

bad=0 useful=0
for ((round = 1; round <= rounds; round++)); do
    one_round $round || bad=$((bad + 1))
done
check "random kills: $rounds (seed $seed)" test $bad = 0
check "most hit a recording under way ($useful)" test $useful -ge $((rounds / 2))

# ---- signals to the recorder end the recording cleanly
for sig in TERM INT HUP; do
    rm -rf s.*
    (trap - INT; exec "$CLIO" record -o s.trace -- sh -c 'trap "echo caught; exit 7" '$sig'; echo ready; while :; do sleep 0.05; done') >s.out 2>s.err &
    recorder=$!
    for ((i = 0; i < 100; i++)); do grep -q ready s.out 2>/dev/null && break; sleep 0.05; done
    kill -$sig $recorder
    wait $recorder
    check "SIG$sig reaches the guest, whose status counts" test $? = 7 -a "$(tail -1 s.out)" = caught
    "$CLIO" replay -a s.trace >s.out2 2>s.err2
    check "and it replays" test $? = 0 && same_file s.out s.out2
    rm -rf s.*
    (trap - INT; exec "$CLIO" record -o s.trace -- sh -c 'trap "" TERM INT HUP; echo ready; while :; do sleep 0.05; done') >s.out 2>s.err &
    recorder=$!
    for ((i = 0; i < 100; i++)); do grep -q ready s.out 2>/dev/null && break; sleep 0.05; done
    kill -$sig $recorder
    wait $recorder
    check "SIG$sig ends even a guest that ignores it" test $? != 0
    "$CLIO" replay -a s.trace >s.out2 2>s.err2
    check "and that replays" test $? = 0 && same_file s.out s.out2
done

# ---- a recording whose store is killed goes on to its end
export CLIO_KILL_ROUND=$$.store
"$CLIO" record -o again.trace -- sh -c 'i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; ls / >/dev/null; sleep 0.02; done; exit 5' >again.out 2>again.err &
recorder=$!
for _ in 1 2 3; do
    sleep 0.2
    for p in $(processes_of $$.store clio-store); do kill -KILL "$p"; done
done
wait $recorder
check "a recording survives its store's death, three times" test $? = 5 -a "$(wc -l <again.out)" = 30
unset CLIO_KILL_ROUND
"$CLIO" replay -a again.trace >again.out2 2>again.err2
check "and replays whole" test $? = 0 && check "every line" same_file again.out again.out2
"$CLIO" verify again.trace >verify.out 2>&1
check "and verifies" test $? = 0
