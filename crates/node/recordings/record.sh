#!/bin/bash
# Copies what plumb node reads of a machine to a folder: record.sh FOLDER
out=$1
put() { # a file by reading it; sysfs files have no true size
  [ -f "$1" ] && [ -r "$1" ] || return 0
  mkdir -p "$out/$(dirname "$1")"; head -c 262144 "$1" > "$out/$1" 2>/dev/null || true
}
link() { [ -L "$1" ] && mkdir -p "$out/$(dirname "$1")" && cp -P "$1" "$out/$1"; }
for f in /proc/sys/kernel/random/boot_id /proc/sys/kernel/{hostname,osrelease,arch,numa_balancing} /etc/os-release /proc/cpuinfo /proc/meminfo /proc/uptime /proc/self/status /proc/self/limits /proc/self/cgroup /proc/self/net/dev \
  /proc/driver/nvidia/version /proc/2/comm /sys/class/dmi/id/{sys_vendor,product_name} /sys/devices/system/cpu/online /sys/devices/system/clocksource/clocksource0/current_clocksource \
  /sys/fs/cgroup/{cpu.max,memory.max,cpu/cpu.cfs_quota_us,cpu/cpu.cfs_period_us,memory/memory.limit_in_bytes} /.dockerenv /run/.containerenv; do put $f; done
for f in /proc/driver/nvidia/gpus/*/information /sys/devices/system/node/node*/{cpulist,meminfo} /sys/kernel/mm/hugepages/*/{nr_hugepages,free_hugepages} /sys/devices/system/cpu/cpufreq/*/scaling_governor; do put $f; done
for d in /sys/bus/pci/devices/*; do
  link $d; real=$(readlink -f $d)
  for a in class vendor device numa_node max_link_speed max_link_width config iommu_group/type; do put $real/$a; done
done
for m in nvidia nvidia_uvm nvidia_peermem nv_peer_mem gdrdrv efa ena ib_uverbs mlx5_core mlx5_ib; do [ -d /sys/module/$m ] && { mkdir -p $out/sys/module/$m; put /sys/module/$m/version; }; done
mkdir -p $out/sys/module
for n in /sys/class/net/*; do
  link $n; real=$(readlink -f $n)
  for a in operstate mtu speed $(cd $real; ls -d statistics/* 2>/dev/null); do put $real/$a; done
  link $real/device
done
for n in /sys/class/infiniband/*; do
  [ -e "$n" ] || continue
  link $n; real=$(readlink -f $n); link $real/device; put $real/fw_ver; put $real/device/p2p
  for a in $(cd $real; ls -d ports/*/{state,phys_state,rate,link_layer} ports/*/counters/* ports/*/hw_counters/* hw_counters/* 2>/dev/null); do put $real/$a; done
done
timeout 5 dd if=/dev/kmsg iflag=nonblock bs=8192 2>/dev/null | grep -aiE "NVRM|nvidia|Linux version|pcie|Command line" | head -60 > /tmp/kmsg.$$; [ -s /tmp/kmsg.$$ ] && { mkdir -p $out/dev; cp /tmp/kmsg.$$ $out/dev/kmsg; }; rm -f /tmp/kmsg.$$
exit 0
