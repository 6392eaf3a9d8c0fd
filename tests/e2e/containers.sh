#!/usr/bin/env bash
# Any container, any environment: a short list of programs, each recorded and replayed where things are refused, hidden,
# small or strange; and what cannot work is said by name. seccomp.sh has the long list.
. "$(dirname "$0")/lib.sh"

box=$BUILD/tests/container
mkdir -p "$BUILD/tests"
[ "$TOP/tests/e2e/container.c" -nt "$box" ] && { gcc -D_GNU_SOURCE -O1 -Wall -Wextra -o "$box" "$TOP/tests/e2e/container.c" || exit 1; }

cat >list.sh <<'L'
echo "shell $((6 * 7)) $PWD"
printf 'b\na\nc\n' | sort | tr a-z A-Z
date >/dev/null; ls -l "$here_list" | wc -l
x=$(echo sub); [ "$x" = sub ] && echo "substituted"
perl -e 'print "perl ", 2 ** 20, "\n"; system "echo from perl"; my $pid = fork; if (!$pid) { exit 7 } wait; print $? >> 8, "\n"'
(sleep 0.05; echo late) & wait
awk 'BEGIN { srand(); print "awk", (rand() >= 0) }'
cat /proc/self/comm 2>/dev/null; ls /proc/self/fd >/dev/null 2>&1
trap 'echo trapped' USR1; kill -USR1 $$
exit 9
L
list=$PWD/list.sh here_list=$PWD
export here_list

# in_box NAME BOX... -- : records and replays the list in BOX..., a command that runs a command
in_box() {
    local what=$1 name=box$((boxes += 1)) good=0
    shift
    rm -rf "$here/$name".*
    "$@" "$CLIO" record -o "$here/$name.trace" -- /bin/sh "$list" >"$here/$name.out" 2>"$here/$name.err" </dev/null
    status=$?
    [ $status = 9 ] || { echo "$what: status $status"; head -5 "$here/$name.err"; good=1; }
    [ $good = 1 ] || grep -q trapped "$here/$name.out" || { echo "$what: output cut short"; good=1; }
    [ $good = 1 ] || ! grep -q '^clio: ' "$here/$name.err" || { cat "$here/$name.err"; good=1; }
    "$@" "$CLIO" replay -a "$here/$name.trace" >"$here/$name.out2" 2>"$here/$name.err2" </dev/null
    [ $? = 0 ] || { echo "$what: replay:"; head -5 "$here/$name.err2"; good=1; }
    same_file "$here/$name.out" "$here/$name.out2" || good=1
    verdict $good "$what"
}
boxes=0

# ---- the environment, as anybody may have it
no_variables() { env -i "$@"; }
no_home() { env -u HOME -u CLIO_TRACE_DIR -u XDG_DATA_HOME "$@"; }
no_term() { env -u TERM -u PATH "$@"; }
odd_umask() { (umask 777; "$@"); }
mild_umask() { (umask 0; "$@"); }
few_files() { (ulimit -n 64; "$@"); }
soft_files() { (ulimit -Sn 12; "$@"); }
many_files() { (ulimit -n "$(ulimit -Hn)"; "$@"); }
small_stack() { (ulimit -s 256; "$@"); }
no_cores() { (ulimit -c unlimited; "$@"); }
long_environment() { (for i in $(seq 1 300); do export "LONG_$i=$(printf '%0200d' "$i")"; done; "$@"); }
no_directory() { (mkdir gone && cd gone && rmdir ../gone && "$@"); }
as_leader() { setsid -w "$@"; }
ignoring() { (trap '' HUP INT TERM CHLD PIPE TSTP; "$@"); }
stdin_closed() { "$@" <&-; }
stderr_closed() { "$@" 2>&-; }
malloc_options() { MALLOC_PERTURB_=77 MALLOC_ARENA_MAX=1 GLIBC_TUNABLES=glibc.malloc.check=1:glibc.malloc.tcache_count=0:glibc.cpu.hwcaps=-AVX2_Usable LD_BIND_NOW=1 "$@"; }
for how in no_variables no_home no_term odd_umask mild_umask few_files soft_files many_files small_stack no_cores \
    long_environment no_directory as_leader ignoring stdin_closed stderr_closed malloc_options; do
    in_box "${how//_/ }" $how
done

# ---- what is meant for the guest reaches it, and its engine does not see it
cat >pre.c <<'C'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void here(void)
{
    FILE *f = fopen(getenv("PRE_FILE"), "a");
    char name[100] = "";
    FILE *c = fopen("/proc/self/cmdline", "r");
    if (c) { name[fread(name, 1, 99, c)] = 0; fclose(c); }
    if (f) { fprintf(f, "%s\n", name); fclose(f); }
}
C
gcc -shared -fPIC -o pre.so pre.c
PRE_FILE=$PWD/pre.seen LD_PRELOAD=$PWD/pre.so "$CLIO" record -o pre.trace -- sh -c 'env | grep -c LD_PRELOAD; cat /dev/null' >pre.out 2>pre.err
check "LD_PRELOAD" test "$(cat pre.out)" = 1
check "reaches every guest" grep -q '^cat' pre.seen
check "and neither engine nor store" test "$(grep -c 'clio-' pre.seen)" = 0
cat >tun.sh <<'S'
echo "$GLIBC_TUNABLES $LD_LIBRARY_PATH $MALLOC_ARENA_MAX $LD_BIND_NOW"
S
GLIBC_TUNABLES=glibc.malloc.check=3 LD_LIBRARY_PATH=/nowhere MALLOC_ARENA_MAX=1 LD_BIND_NOW=1 "$CLIO" record -o tun.trace -- sh tun.sh >tun.out 2>tun.err
check "the rest, too" test "$(cat tun.out)" = "glibc.malloc.check=3 /nowhere 1 1"

"$CLIO" record -o env.trace -- sleep 1000 >env.out 2>env.err &
front=$!
store_of() { # store_of FRONT: its recorder's child that is a store
    local p
    for p in $(pgrep -P "$(pgrep -P "$1")" 2>/dev/null); do
        case $(readlink "/proc/$p/exe") in */clio-store) echo "$p" ;; esac
    done
}
for _ in $(seq 1 200); do
    store=$(store_of $front)
    [ -n "$store" ] && [ -e env.trace/rings/1 ] && break
    sleep 0.05
done
check "the store's environment is empty" sh -c '[ -n "$1" ] && [ -r "/proc/$1/environ" ] && [ -z "$(tr "\\0" "\\n" <"/proc/$1/environ")" ]' sh "$store"
"$CLIO" stop env.trace
wait $front

# ---- said at once, by name
refused() { # refused TEXT BOX...
    local text=$1
    shift
    rm -rf r.trace
    "$@" timeout 20 "$CLIO" record -o "$PWD/r.trace" -- /bin/true >r.out 2>r.err
    status=$?
    check "refused: $text" test $status = 3 -a ! -e r.trace -a "$(wc -l <r.err)" = 1 && check "by name" said r.err "$text" || cat r.err
}
sixteen() { (ulimit -n 16; "$@"); }
little_space() { (ulimit -v 300000; "$@"); }
if "$box" --deny kcmp=1 true 2>/dev/null; then
    refused memfd_create "$box" --deny memfd_create=38
    refused AF_UNIX "$box" --deny socketpair=1
    refused AF_UNIX "$box" --deny socket=1
    refused signalfd "$box" --deny signalfd4=38
    refused SUBREAPER "$box" --deny prctl=1
    refused lifeline "$box" --deny mknodat=1
    for call in clone3=38 clone3=1 pidfd_open=38 pidfd_open=1 close_range=38 close_range=1 kcmp=1 process_vm_readv=1 pidfd_send_signal=38; do
        in_box "without ${call%=*} (error ${call#*=})" "$box" --deny "$call"
    done
else
    skip "calls that are refused" "no system-call filters here"
fi
refused "open files" sixteen
refused "address space" little_space

# ---- mounts: needs a mount namespace
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    base=$(mktemp -d /tmp/clio-containers.XXXXXX)
    trap 'rm -rf "$base"' EXIT
    chmod 755 "$base"
    make -s -C "$TOP" install PREFIX="$base/usr" >install.log 2>&1
    cp list.sh "$box" "$base/"
    mkdir "$base/home" && chown nobody "$base/home"
    # with MOUNTS: a shell's commands before the list runs
    mounted() { # mounted MOUNTS [COMMAND...]
        local mounts=$1
        shift
        unshare -m sh -c "set -e; $mounts; exec \"\$@\"" sh "$@"
    }
    hidden="mount -t proc -o hidepid=2 none /proc; mount -o bind,ro /proc/sys /proc/sys; for f in kcore keys timer_list sched_debug; do [ ! -e /proc/\$f ] || mount --bind /dev/null /proc/\$f; done; mount -t tmpfs -o ro none /proc/scsi 2>/dev/null || :"
    in_box "/proc with hidepid and masks" mounted "$hidden"
    in_box "/proc with subset=pid" mounted "mount -t proc -o subset=pid none /proc"
    in_box "64 MiB of /dev/shm" mounted "mount -t tmpfs -o size=64m none /dev/shm"
    in_box "no /dev/shm, no /tmp" mounted "mount -t tmpfs -o ro,size=4k none /dev/shm; mount -t tmpfs -o ro,size=4k none /var/tmp"
    in_box "no /dev but null" mounted "mkdir -p $base/dev; touch $base/dev/null; mount --bind /dev/null $base/dev/null; mount --rbind $base/dev /dev"
    in_box "a read-only root" mounted "mount --make-rprivate /; mount --bind $PWD $PWD; mount -o remount,ro,bind /"
    refused "/proc is not mounted" mounted "umount -l /proc"
    refused "/proc is not mounted" mounted "mount -t tmpfs none /proc"

    here_before=$here
    export here_list=$base
    as_nobody() { # as an ordinary user who lives in a tmpfs
        mounted "$1; mount -t tmpfs -o size=64m,mode=755,uid=65534 none $base/home; cd $base/home" \
            "$base/container" --profile --user "${3:-65534}" env -i HOME="$base/home" PATH="$PATH" here_list="$base" \
            sh -c "$base/usr/bin/clio record -- sh $base/list.sh >out 2>err; s=\$?; $base/usr/bin/clio replay -a >out2 2>err2; r=\$?; cat out err err2; [ \$s = 9 ] && [ \$r = 0 ] && cmp out out2 && ! grep '^clio' err"
        verdict $? "nobody, $2"
    }
    as_nobody : "a tmpfs home" >nobody.log || cat nobody.log
    tail -1 nobody.log
    as_nobody "$hidden" "hidden /proc" >nobody.log || cat nobody.log
    tail -1 nobody.log
    as_nobody "mount -t proc -o subset=pid none /proc" "subset=pid" >nobody.log || cat nobody.log
    tail -1 nobody.log
    as_nobody "mount --make-rprivate /; mount -o remount,ro,bind /; mount -t tmpfs -o ro none /tmp/nothing 2>/dev/null || :" "a read-only root" >nobody.log || cat nobody.log
    tail -1 nobody.log
    here=$here_before here_list=$here_before

    # ---- a user without a name, few processes
    mkdir -m 777 "$base/any"
    run_as() { # run_as UID LIMITS NAME
        (
            cd "$base/any" && eval "$2" || exit 1
            "$base/container" --profile --user "$1" env -i PATH="$PATH" here_list="$base" "$base/usr/bin/clio" record -o "t$1" -- sh "$base/list.sh" >out 2>err
            s=$?
            "$base/container" --profile --user "$1" env -i PATH="$PATH" "$base/usr/bin/clio" replay -a "t$1" >out2 2>err2
            r=$?
            [ $s = 9 ] && [ $r = 0 ] && cmp out out2 || { echo "status $s, replay $r"; cat err err2; exit 1; }
        )
        verdict $? "$3"
        rm -rf "$base/any/"*
    }
    run_as 54321 : "a user without a passwd entry"
    run_as 54322 "ulimit -u 12" "twelve processes"
    # group CONTROLLER: makes a control group of it, either version, and prints its directory
    group() {
        local dir=/sys/fs/cgroup/$1/clio-$$
        if [ ! -d "/sys/fs/cgroup/$1" ]; then
            grep -qw "$1" /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || return 1
            dir=/sys/fs/cgroup/clio-$1-$$
        fi
        mkdir "$dir" 2>/dev/null && echo "$dir"
    }
    if group=$(group pids); then
        echo 14 >"$group/pids.max"
        in_box "a pids limit of 14" sh -c "echo \$\$ >$group/cgroup.procs && exec \"\$@\"" sh
        # natively a later fork fails than recorded; neither hangs
        echo 5 >"$group/pids.max"
        rm -rf pids.trace
        timeout 60 sh -c "echo \$\$ >$group/cgroup.procs && exec \"\$@\"" sh "$CLIO" record -o pids.trace -- sh -c 'echo one; (echo two; (echo three; (echo four; (echo five; sleep 0.2) )))' >pids.out 2>pids.err
        check "a pids limit that is too small: the guest is told, nothing hangs" test $? != 124
        "$CLIO" replay -a pids.trace >pids.out2 2>pids.err2
        check "and that replays" test $? = 0
        rmdir "$group" 2>/dev/null
    else
        skip "a pids limit" "no control group of pids to be made here"
    fi
    if group=$(group memory); then
        for f in memory.limit_in_bytes memory.max; do [ ! -e "$group/$f" ] || echo 96M >"$group/$f"; done
        in_box "a memory limit of 96 MiB" sh -c "echo \$\$ >$group/cgroup.procs && exec \"\$@\"" sh
        rmdir "$group" 2>/dev/null
    else
        skip "a memory limit" "no control group of memory to be made here"
    fi
else
    skip "mounts, users and control groups" "needs root and mount namespaces"
fi

# ---- a real container of Podman's, whose image is this system's /usr
podman_run() { # podman_run OPTIONS... COMMAND...: the way that works here is in $way
    $way podman run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 -v /usr:/usr:ro -v "$TOP:$TOP:ro" -v "$PWD:$PWD" \
        -e here_list="$PWD" -e CLIO_TRACE_DIR="$PWD/podman" "$@"
}
without_unified() { unshare -m sh -c 'umount /sys/fs/cgroup/unified && exec "$@"' sh "$@"; } # crun takes no hybrid control groups
if ! command -v podman >/dev/null; then
    skip "Podman" "it is not installed"
else
    tar -C / -cf image.tar ./bin ./lib ./lib64 ./etc/passwd ./etc/alternatives
    podman import -q image.tar clio-test:latest >podman.log 2>&1
    runs=
    for way in '' without_unified; do
        podman_run clio-test:latest true >>podman.log 2>&1 && runs=1 && break
    done
    if [ -z "$runs" ]; then
        skip "Podman" "it starts no container here: $(tail -1 podman.log)"
    else
        for how in "" "--read-only --shm-size 64m --memory 256m --pids-limit 64 --security-opt no-new-privileges" "--user 12345:12345 --cap-drop all"; do
            mkdir -p podman && chmod 777 . podman && rm -rf podman.*
            # shellcheck disable=SC2086
            podman_run $how clio-test:latest "$CLIO" record -- sh "$list" >podman.out 2>podman.err
            status=$?
            check "in a container of Podman's $how" test $status = 9 || cat podman.err
            # shellcheck disable=SC2086
            podman_run $how clio-test:latest "$CLIO" replay -a >podman.out2 2>podman.err2
            check "replays there" test $? = 0 && check "the same" same_file podman.out podman.out2
            "$CLIO" replay -a "$(readlink -f podman/latest)" >podman.out2 2>podman.err2
            check "and outside" test $? = 0 && check "the same" same_file podman.out podman.out2
            rm -rf podman
        done
    fi
    podman rmi -f clio-test:latest >/dev/null 2>&1 || :
fi
