# wire NUMBER NETWORK: a wire between the hosts with a card at each end, rxeA<NUMBER> over ethA<NUMBER> with the
# address <NETWORK>.1 in hostA, rxeB<NUMBER> and so on with .2 in hostB. guest.sh makes the first, whose number is
# empty; a command may make more: . /run/machine/wire.sh; wire 2 203.0.113

wire() {
    # An MTU of 4200 leaves room for RDMA packets of 4096 bytes.
    ip link add ethA$1 mtu 4200 netns hostA type veth peer name ethB$1 mtu 4200 netns hostB || return
    for host in A:1 B:2; do
        letter=${host%:*}
        ip -n host$letter -batch - <<END || return
addr add $2.${host#*:}/24 dev eth$letter$1
link set eth$letter$1 up
END
        # The device comes into being in the root namespace. The kernel complains of a QP1 when it is moved: that is
        # the connection manager's (RDMA CM), which works on rxe0 only.
        ip netns exec host$letter rdma link add rxe$letter$1 type rxe netdev eth$letter$1 || return
        rdma dev set rxe$letter$1 netns host$letter || return
    done
    wait_for_gid rxeA$1 ip netns exec hostA && wait_for_gid rxeB$1 ip netns exec hostB
}

# The address's GID comes a moment after the device.
wait_for_gid() {
    device=$1 tries=300
    shift
    until "$@" busybox grep -q ffff: /sys/class/infiniband/$device/ports/1/gids/1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return
        busybox sleep 0.1
    done
}
