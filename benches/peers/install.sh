#!/bin/sh
# Installs the peers that `cargo bench --bench collectives` measures, once, and builds their programs.
#
#   install.sh FOLDER
#
# Open MPI and MPICH come from Debian, Intel MPI and PyTorch (for gloo) from PyPI, each in its own virtual
# environment below FOLDER. Prints one line a peer: its name, a tab, its version. Progress goes to stderr.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
impi=$folder/impi
torch=$folder/torch
impi_version=2021.19.0
torch_version=2.15.0
# The libraries of CUDA that PyTorch wants while it loads; the others are stood in for below.
cuda_runtime="nvidia-cuda-runtime>=13,<14 nvidia-cuda-cupti>=13,<14"

say() { echo "peers: $*" >&2; }

# Debian's two MPIs live beside each other: mpicc.openmpi and mpicc.mpich. They bring the libfabric of Intel MPI.
packages=
for it in openmpi-bin libopenmpi-dev mpich libmpich-dev libfabric1 gcc python3-venv; do
    dpkg-query -W -f '${Status}' "$it" 2>/dev/null | grep -q 'ok installed' || packages="$packages $it"
done
if [ -n "$packages" ]; then
    say "apt-get install$packages"
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends $packages >&2
fi

if [ ! -e "$impi/installed-$impi_version" ]; then
    say "pip install impi-rt impi-devel $impi_version"
    rm -rf "$impi"
    python3 -m venv "$impi"
    # Its dependency `libfabric` is not on PyPI.
    "$impi/bin/pip" install -q --no-deps "impi-rt==$impi_version" "impi-devel==$impi_version" >&2
    touch "$impi/installed-$impi_version"
fi

# PyTorch's wheel on PyPI is linked to 4 GB of CUDA that gloo never calls. It is installed without them; every
# library that is then missing is a link to one small library that has the wanted names, each a trap.
if [ ! -e "$torch/installed-$torch_version" ]; then
    say "pip install torch $torch_version"
    rm -rf "$torch"
    python3 -m venv "$torch"
    "$torch/bin/pip" install -q typing_extensions filelock sympy networkx jinja2 fsspec numpy >&2
    # shellcheck disable=SC2086
    "$torch/bin/pip" install -q --no-deps "torch==$torch_version" $cuda_runtime >&2
    site=$(echo "$torch"/lib/python3*/site-packages)
    stand_ins=$torch/stand-ins
    mkdir -p "$stand_ins"
    real=$(echo "$site"/nvidia/*/lib | tr ' ' ':')
    missing=$(LD_LIBRARY_PATH=$site/torch/lib:$real ldd "$site"/torch/lib/*.so |
        awk '/not found/ && !/libcuda\.so/ { print $1 }' | sort -u)
    nm -D --defined-only "$site"/torch/lib/*.so "$site"/nvidia/*/lib/*.so.* 2>/dev/null |
        awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u >"$stand_ins/had"
    nm -D --undefined-only "$site"/torch/lib/*.so |
        awk '$1 == "U" && $2 ~ /^(cu|nccl|nv)/ { split($2, part, /@+/); print part[1], part[2] }' |
        LC_ALL=C sort -u | LC_ALL=C join -v 1 - "$stand_ins/had" >"$stand_ins/wanted"
    awk '{ print "void " $1 "(void) { __builtin_trap(); }" }' "$stand_ins/wanted" >"$stand_ins/stand-in.c"
    awk 'NF == 2 { names[$2] = names[$2] " " $1 ";" }
        END { for (it in names) print it " { global:" names[it] " };" }' "$stand_ins/wanted" >"$stand_ins/versions"
    gcc -w -fno-builtin -shared -fPIC "-Wl,--version-script=$stand_ins/versions" \
        -o "$stand_ins/stand-in.so" "$stand_ins/stand-in.c"
    for it in $missing; do
        ln -sf stand-in.so "$stand_ins/$it"
    done
    echo "$stand_ins:$real" >"$torch/library-path"
    touch "$torch/installed-$torch_version"
fi

mpicc.openmpi -O2 -Wall -Werror -o "$folder/allreduce-openmpi" "$here/allreduce.c"
mpicc.mpich -O2 -Wall -Werror -o "$folder/allreduce-mpich" "$here/allreduce.c"
gcc -O2 -Wall -Werror -I"$impi/include" -o "$folder/allreduce-impi" "$here/allreduce.c" \
    -L"$impi/lib" -Wl,-rpath,"$impi/lib" -lmpi

printf 'Open MPI\t%s (Debian)\n' "$(dpkg-query -W -f '${Version}' openmpi-bin | sed 's/-.*//')"
printf 'MPICH\t%s (Debian)\n' "$(dpkg-query -W -f '${Version}' mpich | sed 's/-.*//')"
printf 'Intel MPI\t%s (PyPI), libfabric %s (Debian)\n' "$impi_version" \
    "$(dpkg-query -W -f '${Version}' libfabric1 | sed 's/-.*//')"
printf 'gloo\tof PyTorch %s (PyPI)\n' "$torch_version"
