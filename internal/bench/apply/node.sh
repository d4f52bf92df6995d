# Puts the programs in $1 where a node has them, and starts containerd.
set -eu
modprobe -a br_netfilter nf_conntrack overlay
sysctl -q -w net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
mkdir -p /opt/cni/bin
tar -xz -C /usr/local -f "$1/containerd.tar.gz"
tar -xz -C /opt/cni/bin -f "$1/cni.tgz"
mv "$1/runc" /usr/local/sbin/
mv "$1/kubeadm" "$1/kubelet" "$1/kubectl" /usr/bin/
rm -r "$1"
systemctl daemon-reload
systemctl enable --now containerd.service
systemctl enable kubelet.service
