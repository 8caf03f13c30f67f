#!/bin/sh
# Process 1 of a machine, in namespaces of its own: machine.sh HOSTNAME FOLDER [node]. FOLDER/up is there when it is done.
# A node gets mounts as a kubelet wants them; what changes is seen in these namespaces alone, and goes with them.
set -eu
folder=$2
hostname "$1"
ip link set lo up
if [ "${3:-}" = node ]; then
  mount --make-rshared /  # a peer group inside this mount namespace only; containerd wants one
  hierarchies=$(awk '{split($0, half, " - "); split(half[2], kind, " "); if (kind[1] == "cgroup") print $5}' /proc/self/mountinfo)
  umount -R /sys/fs/cgroup
  # A sysfs of our own network, and the same cgroups, seen from our own root.
  mount -t sysfs sysfs /sys
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for path in $hierarchies; do
    name=${path##*/}
    mkdir "$path"
    case $name in
      systemd) mount -t cgroup -o none,name=systemd cgroup "$path" ;;
      *) mount -t cgroup -o "$name" cgroup "$path" ;;
    esac
  done
  # /run has the sockets of the containers' shims, /var what the kubelet, CNI and containerd write to whatever they are told.
  mount -t tmpfs -o mode=755 tmpfs /run
  mount -t tmpfs -o mode=755 tmpfs /var
  mkdir -p /run/lock /run/netns /var/lib/kubelet /var/lib/cni /var/log /var/tmp "$folder/kubelet"
  ln -s /run /var/run
  mount --bind "$folder/kubelet" /var/lib/kubelet
  # The kubelet sets these for the whole kernel; a file in their place satisfies it, and leaves this machine's kernel alone.
  for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/$(echo "${setting%=*}" | tr / .)
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
  done
fi
touch "$folder/up"
# Everybody's last parent: a shell would wait for its own children alone.
exec python3 -I -S -c 'import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        signal.sigwait([signal.SIGCHLD])'
