# Stops the units of the kubelet, kube-proxy and containerd, ends the containers, which
# outlive them, and removes the network of CNI and kube-proxy: kubelet, kube-proxy, containerd.
PATH=$PATH:/usr/local/bin:/usr/sbin:/sbin
systemctl stop "$1" "$2"
tasks=$(ctr -n k8s.io tasks ls -q)
# shellcheck disable=SC2086 # one word a task
[ -z "$tasks" ] || ctr -n k8s.io tasks rm -f $tasks
systemctl stop "$3"
for process in /proc/[0-9]*; do
	{ read -r name <"$process/comm"; } 2>/dev/null || continue
	case $name in containerd-shim*) ;; *) continue ;; esac # the kernel keeps 15 bytes of a name
	case $(readlink "$process/exe") in */containerd-shim-runc-v2*) kill -9 "${process#/proc/}" ;; esac
done
for ns in /run/netns/cni-*; do [ ! -e "$ns" ] || ip netns delete "${ns##*/}"; done
ip link delete cni0
for family in ip ip6; do
	nft delete table $family kube-proxy
	nft delete table $family cni_hostport
done
exit 0
