#!/bin/sh
# Breaks one thing in the cluster of the exercises: sh break.sh NAME. `sh break.sh list` prints the names. It needs labs.sh
# beside it, and the file ssh_config in the current directory. `terraform plan` names the fault, and `terraform apply` mends it.
set -eu
# shellcheck disable=SC1091
. "$(dirname "$0")/labs.sh"

# on MACHINE SCRIPT runs a script as root.
on() { printf '%s\n' "$2" | ssh "$1" sudo sh -es; }

case "${1-}" in
list) sed -n 's/^\([a-z-]*\)) on .*/\1/p' "$0" ;;
etcd) on controller-2 'systemctl stop etcd' ;;
kube-apiserver) on controller-1 'rm /etc/kubernetes/audit-policy.yaml' ;;
kube-controller-manager) on controller-2 'cd /usr/local/bin; cp /bin/true new; mv new kube-controller-manager; systemctl restart kube-controller-manager' ;;
kube-scheduler) on controller-2 'echo "nonsense: true" >>/etc/kubernetes/kube-scheduler.yaml; systemctl restart kube-scheduler' ;;
kubelet) on worker-1 'sed -i s/6443/6444/ /etc/kubernetes/kubelet.kubeconfig; systemctl restart kubelet' ;;
kube-proxy) on worker-1 'systemctl stop kube-proxy; ln -sf /dev/null /etc/systemd/system/kube-proxy.service; systemctl daemon-reload' ;;
haproxy) on lb-0 'sed -i /controller-2/d /etc/haproxy/haproxy.cfg; systemctl reload haproxy' ;;
certificate) on controller-1 'cd /etc/kubernetes/pki; openssl req -x509 -new -key kube-controller-manager.key -subj /CN=by-hand -days 30 -out kube-controller-manager.crt' ;;
route) on worker-0 'sed -i "/isDefaultGateway/s/true/false/" /etc/cni/net.d/10-bridge.conflist' ;;
file) on worker-1 'chmod 0644 /etc/kubernetes/pki/kubelet.key' ;;
*)
  echo "usage: break.sh list, or break.sh with one of: $(sh "$0" list | tr '\n' ' ')" >&2
  exit 2
  ;;
esac
