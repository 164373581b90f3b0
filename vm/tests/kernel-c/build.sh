#!/bin/sh
# Builds the images of the small kernel for QEMU's machine virt: sh build.sh FOLDER [LIBRARY]
#   poll-print    a send waits for its completion; about 170 characters an echo to the console
#   poll          without the characters
#   async-print   completions are reaped later
#   async         both changes
#   race          async with a mistake in its start: hangs if frames arrive before it is ready
#   race-fixed    async under another name: the start without the mistake
# and with libwirepath_virtio.a in the folder LIBRARY, which `cargo xtask firmware` makes:
#   lib           that driver in place of the plain one
#   lib-pci       the same over PCI, by the interrupt pin
#   lib-msix      the same by messages; needs -M virt,gic-version=2
# Compiler: Debian's gcc-aarch64-linux-gnu, or AARCH64_CC.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh FOLDER [LIBRARY]}
library=${2:-}
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
mkdir -p "$out"

# An image: its name, the files of its driver and its interrupt controller, more arguments.
image() {
    name=$1 driver=$2 controller=$3
    shift 3
    "$cc" -std=c11 -O2 -g0 -Wall -Wextra -Werror -ffreestanding -nostdlib -static -fno-pic -no-pie -fno-stack-protector \
        -fno-builtin -fno-tree-loop-distribute-patterns -ffunction-sections -mgeneral-regs-only -mstrict-align -Wl,--build-id=none \
        -Wl,-z,max-page-size=4096 -Wl,--no-warn-rwx-segments -Wl,--gc-sections -T "$here/layout.ld" \
        "$here/start.S" "$here/kernel.c" "$here/answers.c" "$here/$driver" \
        "$here/$controller" "$@" -o "$out/$name.elf"
}

image poll-print virtio_net.c gic3.c -DPOLL -DPRINT
image poll virtio_net.c gic3.c -DPOLL
image async-print virtio_net.c gic3.c -DPRINT
image async virtio_net.c gic3.c
image race virtio_net.c gic3.c -DRACE
image race-fixed virtio_net.c gic3.c
if [ -n "$library" ]; then
    set -- -I"$here/../../firmware/capi/include" "$library/libwirepath_virtio.a"
    image lib library_net.c gic3.c "$@"
    image lib-pci library_net.c gic3.c -DPCI "$@"
    image lib-msix library_net.c gic2.c -DPCI -DMESSAGES "$@"
fi
