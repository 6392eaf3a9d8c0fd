#!/usr/bin/env bash
# The real programs that must record and replay identically, their inputs gone before the replay.
. "$(dirname "$0")/lib.sh"

# A small tree with some of everything; deterministic.
prepare() {
    (
        cd "$2" || exit 1
        mkdir -p tree/a/b tree/c "tree/with space"
        for i in $(seq 1 200); do echo "line $i of file $((i * 7919 % 1000)) needle$((i % 10))"; done >tree/text
        for i in $(seq 1 20); do seq "$i" $((i * 50)) >"tree/a/n$i"; done
        cp tree/text tree/a/b/copy
        echo "caf\303\251 \377 bytes" >"tree/with space/x"
        ln -s ../text tree/c/link
        ln -s nowhere tree/c/dangling
        : >tree/empty
        cat >prog.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; int key; };
static struct node *insert(struct node *n, int key)
{
    if (!n) {
        n = calloc(1, sizeof *n);
        n->key = key;
    } else if (key < n->key) {
        n->left = insert(n->left, key);
    } else {
        n->right = insert(n->right, key);
    }
    return n;
}
static int depth(const struct node *n) { int l, r; if (!n) return 0; l = depth(n->left); r = depth(n->right); return 1 + (l > r ? l : r); }
int main(void)
{
    struct node *root = NULL;
    unsigned x = 1;
    for (int i = 0; i < 1000; i++) root = insert(root, (int)((x = x * 1103515245 + 12345) >> 8));
    printf("depth %d\n", depth(root));
    return 0;
}
C
        cp prog.c one.c && sed 's/main(void)/two(void)/' prog.c >two.c
        sed -i 's/static int depth/int two(void); static int depth/; s/return 0;\n}$/return two();/' one.c
        cat >Makefile <<'M'
prog: one.o two.o
	gcc -o $@ $^
	@echo linked
%.o: %.c
	gcc -O1 -c -o $@ $<
M
    )
}

sh_script='
trap "echo got usr1" USR1
trap "echo bye" EXIT
i=0
while [ $i -lt 20 ]; do i=$((i + 1)); echo "$i $((i * i))"; done | sort -rn | head -5
(sleep 0.05; kill -USR1 $$) &
wait; wait
for f in tree/*; do [ -d "$f" ] && echo "dir $f"; done
echo sum $(cat tree/a/n3 | while read n; do echo $n; done | awk "{s += \$1} END {print s}")
cat <<X | tr a-z A-Z
here document $i
X
false || echo or
exit 5'

bash_script='
declare -A words
while read -r a b rest; do words[$b]+=x; done <tree/text
echo ${#words[@]} ${words[7]}
for ((i = 0; i < 100; i++)); do s=$((s + i ** 2)); done; echo $s
coproc { while read l; do echo "co $l"; done; }
echo hello >&${COPROC[1]}; read -r l <&${COPROC[0]}; echo $l
kill $COPROC_PID; wait 2>/dev/null
mapfile -t lines < <(grep needle3 tree/text); echo ${#lines[@]}
[[ ${lines[0]} =~ of\ file\ ([0-9]+) ]] && echo ${BASH_REMATCH[1]}
sleep 0.2 & sleep 0.1 & jobs -r | wc -l; wait; echo waited
trap "echo alarm" ALRM; kill -ALRM $BASHPID
echo $RANDOM $$ $SECONDS >/dev/null; printf "%(%Y)T\n" 0
diff <(sort tree/a/n1) <(sort tree/a/n2) | tail -1
exit 6'

python_script='
import sys, os, time, random, json, subprocess, sqlite3, re, collections, hashlib, datetime, tempfile, struct, zlib, math
import argparse, csv, io, logging, decimal, fractions, itertools, functools, urllib.parse, xml.etree.ElementTree, unittest, pickle, shutil, glob
print(sys.version_info[0], len(sys.modules) > 100)
print(random.random(), random.getrandbits(64), time.time(), os.getpid(), hash("randomized"))
print(datetime.datetime.now(), os.urandom(8).hex())
db = sqlite3.connect(":memory:")
db.execute("create table t(a integer primary key, b text)")
db.executemany("insert into t(b) values (?)", [(str(i * i),) for i in range(2000)])
print(db.execute("select count(*), sum(a), max(b) from t").fetchone())
d = json.loads(json.dumps({"k": [1, 2.5, None, True, "x" * 50], "n": {str(i): i for i in range(100)}}))
print(len(d["n"]), hashlib.sha256(json.dumps(d, sort_keys=True).encode()).hexdigest())
print(subprocess.run(["sh", "-c", "echo from child; exit 3"], capture_output=True, text=True))
print(subprocess.check_output("sort tree/a/n5 | tail -1", shell=True))
p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(p.communicate(b"through cat")[0], p.returncode)
try:
    subprocess.run(["/nonexistent"])
except FileNotFoundError as e:
    print(e)
print(re.findall(r"needle(\d)", open("tree/text").read())[:20], zlib.crc32(open("tree/text", "rb").read()))
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(18), sum(math.sin(i) for i in range(10000)))
words = collections.Counter(open("tree/text").read().split())
print(words.most_common(3))
with tempfile.NamedTemporaryFile() as f:
    f.write(b"x" * 100000); f.flush(); print(os.path.getsize(f.name))
time.sleep(0.02)
sys.exit(4)'

perl_script='
use strict; use warnings; use POSIX; use Data::Dumper; use List::Util qw(sum shuffle); use Time::HiRes qw(time sleep);
my %h; open my $f, "<", "tree/text" or die; while (<$f>) { $h{$1}++ if /(needle\d)/ } close $f;
print map { "$_ $h{$_}\n" } sort keys %h;
print rand(), " ", time, " $$ ", join(",", shuffle(1..20)), "\n";
my $pid = fork // die; if (!$pid) { print "child\n"; exit 7 } waitpid $pid, 0; print $? >> 8, "\n";
print `echo backticks | tr a-z A-Z`; local $SIG{ALRM} = sub { print "alarm\n" }; alarm 1; select undef, undef, undef, 3;
print sum(map { sqrt } 1..1000), "\n"; $_ = "x" x 1000; s/x/yy/g; print length, "\n"; sleep 0.01; exit 8'

lua_script='
local t = {} for i = 1, 50000 do t[i] = (i * 7919) % 50021 end table.sort(t) print(t[1], t[25000], #t)
local s = {} for l in io.lines("tree/text") do s[#s + 1] = l:upper():reverse():sub(1, 5) end print(#table.concat(s))
print(os.time() > 0, os.clock() >= 0, math.random(), os.getenv("HOME"))
local co = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end end) local n = 0 for i = 1, 1000 do n = n + co() end print(n)
print(pcall(error, "caught")) print(string.format("%q %5.2f", "a\nb", 3.14159)) local p = io.popen("echo popen") print(p:read("a")) p:close() os.exit(9)'

git_script='
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git init -q repo && cd repo && git config user.name a && git config user.email a@b && git config gc.auto 0 && git config pack.threads 1 && git config index.threads 1
cp -r ../tree . && git add -A && git commit -qm first && echo more >>tree/text && git commit -qam second
git log --stat --format="%s %an" && git diff HEAD~1 | tail -3 && git branch other && git checkout -q other && git mv tree/empty tree/moved && git commit -qm third
git merge-base other HEAD && git log --oneline --graph --all && git gc -q && git fsck && git status --short && git show --name-only HEAD && git blame tree/text | tail -1'

program ls 0 ls -lR --full-time .
program ls-color 0 ls --color=always -la /usr/bin
program cat 0 cat tree/text tree/a/n1 tree/empty
program sort 0 sort -k3n -k2r tree/text
program sort-unique 0 sh -c 'cat tree/a/* | sort -u --parallel=1 | md5sum'
program grep 0 grep -rn "needle[37]" tree
program grep-none 1 grep -r "absent from everything" tree
program find 0 find . -type f -size -100k -newermt 2000-01-01 -printf '%p %s %m\n'
program find-exec 0 find tree -name 'n1*' -exec wc -l '{}' +
program sed 0 sed -n -e 's/needle\([0-9]\)/<\1>/gp' -e '$=' tree/text
program sed-in-place 0 sh -c 'sed -i s/line/LINE/ tree/text && head -3 tree/text'
program mawk 0 awk '{ n[$NF] += $2; s = s substr($0, NR % 5, 3) } END { for (k in n) print k, n[k]; print length(s), rand(), srand() }' tree/text
[ -x /usr/bin/gawk ] && program gawk 0 gawk 'BEGIN { srand(); print rand(), systime(), PROCINFO["pid"] } { gsub(/e/, "E"); a[NR] = $0 } END { asort(a); print a[1], strftime("%Y", 0) }' tree/text
program tar-gzip 0 sh -c 'tar czf t.tgz tree && tar tzvf t.tgz && mkdir out && tar xzf t.tgz -C out && diff -r --no-dereference tree out/tree && ls -l t.tgz'
program tar-xz 0 sh -c 'tar cJf t.txz -T /dev/null tree && tar tJf t.txz | wc -l'
program tar-bzip2 0 sh -c 'tar cjf t.tbz tree && tar xjOf t.tbz tree/text | tail -1 && bzip2 -t t.tbz'
program gzip 0 sh -c 'gzip -9 <tree/text | gzip -d | cmp - tree/text'
program date 0 date '+%s.%N %c'
program ps 0 ps aux
program ps-self 0 sh -c 'ps -o pid,ppid,comm,args -p $$'
program dash 5 dash -c "$sh_script"
program bash 6 bash -c "$bash_script"
program sh-files 0 sh -c 'cp -r tree t2; mv t2/text t2/moved; rm -r t2/a; touch t2/new; chmod 700 t2/new; ls -R t2; du -s t2; df . >/dev/null; stat -c %a t2/new; tac t2/moved | cut -d" " -f2 | uniq | paste -s -d, | fold -w 60; id; uname -a; env | sort; pwd; expr 3 + 4; basename /x/y.c .c; ! test -e nothing'
program xargs 0 sh -c 'ls tree/a | xargs -P 2 -n 3 sh -c "echo \$# >/dev/null" ; seq 1 300 | xargs -n 50 echo'
program yes-head 0 sh -c 'yes | head -100000 | wc -c'
program dd 0 sh -c 'dd if=/dev/urandom bs=1000 count=20 2>/dev/null | od -An -tx1 | md5sum; dd if=/dev/zero of=z bs=64k count=10 status=none; wc -c z'
program perl 8 perl -e "$perl_script"
[ -x /usr/bin/python3 ] && program python3 4 /usr/bin/python3 -c "$python_script"
program sqlite3 0 sqlite3 test.db 'create table t(a, b text); with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000) insert into t select x, hex(randomblob(8)) from c; create index i on t(b); select count(*), min(b) from t; select a from t order by b limit 5; pragma integrity_check; vacuum;'
program lua 9 lua5.4 -e "$lua_script"
program git 0 bash -c "$git_script"
program gcc 0 gcc -O2 -Wall -o prog prog.c
program gcc-and-run 0 sh -c 'gcc -O2 -g prog.c -o prog && ./prog && size prog >/dev/null && strip prog && ./prog'
program gcc-error 1 gcc -c -x c tree/text
program make 0 sh -c 'make -j2 --output-sync; make -j2; ./prog'
program vim 0 vim -es -u NONE -N -c '%s/needle/NEEDLE/g' -c 'g/9$/d' -c 'w! out' -c '%print' -c 'q!' tree/text
program busybox 0 busybox sh -c 'busybox ls -l tree; busybox find tree | busybox wc -l; busybox awk "BEGIN { print 1/3 }"; busybox vi --help 2>&1 | busybox head -1; busybox md5sum tree/text; i=0; while [ $i -lt 50 ]; do i=$((i+1)); done; echo $i'
program diff 1 diff -ru tree/a tree/a/b
program file-type 0 file tree/text tree/c/link /bin/ls
program strings 0 sh -c 'strings -n 8 /bin/true | head -5; nm -D /bin/true 2>&1 | tail -1; readelf -h /bin/true | grep Machine; objdump -d /bin/true | head -20 | tail -3'
program killed-segv 139 sh -c 'kill -SEGV $$'
program killed-kill 137 sh -c 'echo before; kill -KILL $$'
program killed-abrt 134 sh -c 'kill -ABRT $$'
program timeout 124 timeout 0.2 sleep 5
program nice 0 nice -n 5 sh -c 'nice; ulimit -a | head -3'
program setsid 0 setsid -w sh -c 'echo session'
printf 'a\nfirst\nsecond\n.\n1,$p\nw file\nq\n' >stdin
program ed 0 ed -s
printf 'one\ntwo\nthree\n' >stdin
program stdin-file 0 sort -r
program stdin-read 0 sh -c 'read a; read b; echo "$b $a"; cat'
