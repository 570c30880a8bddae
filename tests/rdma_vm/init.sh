#!/bin/busybox sh
# The first program of the guest: loads modules, then makes the host's file system the guest's, with a layer in memory
# for what is written. /run/machine is the one folder that is shared with the host for writing; guest.sh there goes on.
bb=/bin/busybox
die() { echo "init: $*" >/dev/console; $bb poweroff -f; }

$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do
    $bb insmod $module || die "cannot load $module"
done
options=trans=virtio,version=9p2000.L,msize=500000
$bb mount -t 9p -o $options,ro,cache=loose root /lower || die "cannot mount the host's root"
$bb mount -t tmpfs -o size=75%,mode=0755 tmpfs /upper
$bb mkdir /upper/files /upper/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /new || die "cannot mount /"
$bb mount -t tmpfs -o mode=0755 tmpfs /new/run
$bb mkdir /new/run/machine
$bb mount -t 9p -o $options,rw,cache=none machine /new/run/machine || die "cannot mount the shared folder"
for folder in proc sys dev; do
    $bb mount --move /$folder /new/$folder
done
exec $bb switch_root /new /bin/sh /run/machine/guest.sh
