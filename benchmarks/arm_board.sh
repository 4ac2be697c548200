#!/bin/sh
# An aarch64 board emulated on this machine: a Debian arm64 root with TVM's wheel, run by QEMU.
#
#   benchmarks/arm_board.sh make DIR          set it up (15 minutes; as root; goes on where it was)
#   benchmarks/arm_board.sh serve DIR PORT    TVM's own RPC server on it, in the foreground
#
# Needs Debian packages (it says which), a kernel with
# binfmt_misc, and a registry of packages for Python. Nothing is written outside DIR but one line in
# the kernel's register of binary formats, which a restart forgets.
set -eu

SUITE=bookworm
TVM=0.27.0.post1
FFI=0.1.14.post1
NUMPY=2.2.6
FORMATS=/proc/sys/fs/binfmt_misc

fail() { echo "arm_board: $1" >&2; exit 3; }

register() {
    [ -e "$FORMATS/register" ] || mount -t binfmt_misc binfmt_misc "$FORMATS" 2>/dev/null || true
    [ -e "$FORMATS/register" ] || fail "the kernel has no binfmt_misc; load its module"
    [ -e "$FORMATS/qemu-aarch64" ] && return
    # F: the interpreter is opened now, so that it is found inside the root as well.
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf '%s' ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" \
        > "$FORMATS/register" || fail "qemu-aarch64 cannot be registered; run this as root"
}

make_board() {
    for tool in qemu-aarch64-static debootstrap aarch64-linux-gnu-gcc; do
        command -v "$tool" > /dev/null ||
            fail "no $tool; apt-get install qemu-user-static debootstrap gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    done
    mkdir -p "$1"
    board=$(cd "$1" && pwd)
    root=$board/root
    if [ ! -e "$board/.first" ]; then
        rm -rf "$root"
        debootstrap --arch=arm64 --foreign --variant=minbase \
            --include=python3,python3-psutil,python3-tornado,python3-cloudpickle,libgomp1 \
            "$SUITE" "$root"
        touch "$board/.first"
    fi
    register
    if [ ! -e "$board/.second" ]; then
        cp "$(command -v qemu-aarch64-static)" "$root/usr/bin/"
        chroot "$root" /debootstrap/debootstrap --second-stage
        touch "$board/.second"
    fi
    if [ ! -e "$board/.wheels" ]; then
        # The root's Python is 3.11, whatever this machine's is.
        ${PYTHON:-python3} -m pip download --quiet --no-deps --only-binary=:all: \
            --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
            --platform manylinux2014_aarch64 --python-version 3.11 --dest "$board/wheels" \
            "apache-tvm==$TVM" "apache-tvm-ffi==$FFI" "numpy==$NUMPY" ml_dtypes typing_extensions
        for wheel in "$board"/wheels/*.whl; do
            ${PYTHON:-python3} -m zipfile -e "$wheel" "$root/usr/lib/python3/dist-packages"
        done
        touch "$board/.wheels"
    fi
    echo "$root is a board; benchmarks/arm_board.sh serve $1 9391 starts its server"
}

serve() {
    root=$(cd "$1/root" && pwd) || fail "no board in $1; benchmarks/arm_board.sh make $1"
    register
    for each in proc dev; do
        mountpoint -q "$root/$each" || mount --bind "/$each" "$root/$each"
    done
    exec chroot "$root" /usr/bin/env HOME=/root LANG=C.UTF-8 TVM_BIND_THREADS=0 \
        python3 -m tvm.exec.rpc_server --host 127.0.0.1 --port "$2" --port-end $(($2 + 1))
}

case "${1-}" in
    make) make_board "${2:?the folder of the board}" ;;
    serve) serve "${2:?the folder of the board}" "${3:?a port}" ;;
    *) fail "say make DIR or serve DIR PORT" ;;
esac
