# Makes the devices, runs /run/machine/command and leaves its output and exit status beside it.
#   root namespace   rxe0 over dummy ethR   192.0.2.1      talks to itself
#   hostA            rxeA over veth  ethA   198.51.100.1   one wire
#   hostB            rxeB over veth  ethB   198.51.100.2   between them
# The GID with index 1 of each is that of RoCE v2 over its IPv4 address.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec </dev/null >/dev/console 2>&1
trap 'echo "guest.sh: the command was not reached"; busybox poweroff -f' EXIT
set -e

bb=busybox # starts faster than what it stands for
$bb mkdir -p /dev/pts /dev/shm
$bb mount -t devpts -o mode=0620,ptmxmode=0666 devpts /dev/pts
$bb mount -t tmpfs -o mode=1777 tmpfs /dev/shm
[ -e /dev/fd ] || $bb ln -s /proc/self/fd /dev/fd
[ -e /dev/stdin ] || $bb ln -s fd/0 /dev/stdin
[ -e /dev/stdout ] || $bb ln -s fd/1 /dev/stdout
[ -e /dev/stderr ] || $bb ln -s fd/2 /dev/stderr

. /run/machine/wire.sh
rdma system set netns exclusive
for host in hostA hostB; do
    ip netns add $host
    ip -n $host link set lo up
done
ip -batch - <<END
link set lo up
link add ethR mtu 4200 type dummy
addr add 192.0.2.1/24 dev ethR
link set ethR up
END
rdma link add rxe0 type rxe netdev ethR
wire "" 198.51.100
wait_for_gid rxe0

for processor in /sys/devices/system/cpu/cpu[1-9]*/online; do # see maxcpus in machine.py
    echo 1 >"$processor"
done
echo "guest.sh: ready after $($bb cut -d' ' -f1 /proc/uptime) s"

cd /run/machine
set +e
/bin/sh command >stdout 2>stderr
echo $? >status
trap - EXIT
$bb poweroff -f
