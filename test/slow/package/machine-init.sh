#!/bin/sh
# First process of a throwaway machine: this machine's own files, with every change kept in memory, in namespaces
# of its own. $1: a directory with room for it; $2: "systemd", or "plain" for a machine without a service manager;
# $3: the directory whose files it has, / for this machine's; $4: a file or directory to be found in its /root, or
# nothing; $5: the repository, to be seen where it is, or nothing.
set -e
place=$1
machine=$place/machine
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$machine"
mount -t overlay overlay -o "lowerdir=$3,upperdir=$place/upper,workdir=$place/work" "$machine"
if [ -n "$4" ]; then cp -r "$4" "$machine/root/"; fi
mount -t proc proc "$machine/proc"
mount --bind "$machine/proc/sys" "$machine/proc/sys"
mount -o remount,ro,bind "$machine/proc/sys"
mount -t sysfs -o ro sysfs "$machine/sys"
mount -t tmpfs tmpfs "$machine/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$machine/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$machine/run"
mount -t tmpfs -o mode=1777 tmpfs "$machine/tmp"
if [ -n "$5" ]; then
  mkdir -p "$machine$5"
  mount --bind "$5" "$machine$5"
  mount -o remount,ro,bind "$machine$5"
fi
mount -t tmpfs -o mode=755 tmpfs "$machine/dev"
for name in null zero full random urandom tty; do
  touch "$machine/dev/$name"
  mount --bind "/dev/$name" "$machine/dev/$name"
done
mkdir "$machine/dev/shm" "$machine/dev/pts" "$machine/dev/mqueue" "$machine/dev/hugepages"
ln -s pts/ptmx "$machine/dev/ptmx"
ln -s /proc/self/fd "$machine/dev/fd"
ip link set lo up

# A container's image forbids services to start at install; a shop's machine does not.
rm -f "$machine/usr/sbin/policy-rc.d" "$machine/etc/fstab" "$machine/etc/machine-id"
# What another test left there.
rm -rf "$machine/var/lib/tillsync"
echo 0123456789abcdef0123456789abcdef > "$machine/etc/machine-id"
# Nothing of the real machine is started or set.
for unit in systemd-udevd systemd-udev-trigger systemd-sysctl systemd-modules-load systemd-random-seed \
  systemd-networkd systemd-resolved systemd-timesyncd systemd-logind console-getty dbus ssh cron; do
  ln -sfn /dev/null "$machine/etc/systemd/system/$unit.service"
done

cd "$machine"
mkdir -p old
pivot_root . old
umount -l old
mount --make-rshared /
echo ready
if [ "$2" = systemd ]; then
  exec env -i container=other PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system --unit=multi-user.target \
    --log-target=console --show-status=no
fi
exec sleep infinity
