# lacking.sh: for tests/cpus/run and tests/cpus/init.

# lacking TRACE: what this processor lacks for a trace, by the kernel's list of its flags. rdrand, rdseed and rdpid are
# Clio's own: it records what they gave.
lacking() {
    local want= f
    case $(sed -n 's/^cpu-level: //p' "$1/trace") in
    4) want="avx512f avx512dq avx512cd avx512bw avx512vl avx2 ssse3" ;;
    3) want="avx2 bmi1 bmi2 fma f16c movbe abm ssse3" ;;
    2) want="ssse3 sse4_1 sse4_2 popcnt cx16 lahf_lm" ;;
    esac
    for f in $want $(sed -n 's/^cpu-features: //p' "$1/trace" | tr , ' '); do
        case $f in rdrand | rdseed | rdpid) continue ;; sha) f=sha_ni ;; esac
        grep -qw "^flags.* $f" /proc/cpuinfo || echo "$f"
    done
}
