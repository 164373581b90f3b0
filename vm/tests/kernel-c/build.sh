#!/bin/sh
# Builds the images of the small kernel for QEMU's machine virt: sh build.sh FOLDER
#   poll-print    a send waits for its completion; about 170 characters an echo to the console
#   poll          without the characters
#   async-print   completions are reaped later
#   async         both changes
#   race          async with a mistake in its start: hangs if frames arrive before it is ready
#   race-fixed    async under another name: the start without the mistake
# Compiler: Debian's gcc-aarch64-linux-gnu, or AARCH64_CC.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh FOLDER}
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
mkdir -p "$out"

# An image: its name, the driver's file, more arguments.
image() {
    name=$1 driver=$2
    shift 2
    "$cc" -std=c11 -O2 -g0 -Wall -Wextra -Werror -ffreestanding -nostdlib -static -fno-pic -no-pie -fno-stack-protector \
        -fno-builtin -fno-tree-loop-distribute-patterns -mgeneral-regs-only -mstrict-align -Wl,--build-id=none \
        -Wl,-z,max-page-size=4096 -Wl,--no-warn-rwx-segments -T "$here/layout.ld" \
        "$here/start.S" "$here/kernel.c" "$here/answers.c" "$here/$driver" "$@" -o "$out/$name.elf"
}

image poll-print virtio_net.c -DPOLL -DPRINT
image poll virtio_net.c -DPOLL
image async-print virtio_net.c -DPRINT
image async virtio_net.c
image race virtio_net.c -DRACE
image race-fixed virtio_net.c
