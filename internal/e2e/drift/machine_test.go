package drift_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"regexp"
	"testing"
	"time"
)

// The resources of the example that own what is on machines.
const (
	etcdCluster  = "k8s_etcd_cluster.this"
	controlPlane = "k8s_control_plane.this"
	workerPool   = "k8s_worker_pool.this"
	loadBalancer = "k8s_lb.this"
)

func on(machine, script string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) { w.Sh(t, machine, script) }
}

func see(machine, script string) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string { return w.Sh(t, machine, script) }
}

// file sees everything about a file.
func file(machine, path string) func(*testing.T, *world) string {
	return see(machine, "stat -c '%F %a %U:%G' "+path+"; sha256sum "+path+"; true")
}

// unit sees whether a unit runs and is enabled.
func unit(machine, name string) func(*testing.T, *world) string {
	return see(machine, "systemctl is-active "+name+"; systemctl is-enabled "+name+"; true")
}

const content = `content differs \(sha256 found [0-9a-f]{12}\.\., wanted [0-9a-f]{12}\.\.\)`

func files() []damage {
	dropIn := "/etc/systemd/system/etcd.service.d/10-hand.conf"
	return []damage{
		{
			name: "file edited", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "echo '# by hand' >> /etc/kubernetes/kubelet.yaml"), look: file("worker-0", "/etc/kubernetes/kubelet.yaml"),
			says: []string{"file /etc/kubernetes/kubelet.yaml: " + content}, restarts: []string{"worker-0/kubelet"},
		},
		{
			name: "unit file edited", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "echo '# by hand' >> /etc/systemd/system/kube-proxy.service && systemctl daemon-reload"), look: file("worker-0", "/etc/systemd/system/kube-proxy.service"),
			says: []string{"file /etc/systemd/system/kube-proxy.service: " + content}, restarts: []string{"worker-0/kube-proxy"},
		},
		{
			name: "mode of a key", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "chmod 0644 /etc/kubernetes/pki/kubelet.key"), look: file("worker-1", "/etc/kubernetes/pki/kubelet.key"),
			says: []string{"file /etc/kubernetes/pki/kubelet.key: mode 0644, wanted 0600"},
		},
		{
			name: "owner", resource: controlPlane, thing: "controller-0",
			hurt: on("controller-0", "chown nobody /etc/kubernetes/kube-scheduler.yaml"), look: file("controller-0", "/etc/kubernetes/kube-scheduler.yaml"),
			says: []string{"file /etc/kubernetes/kube-scheduler.yaml: owner nobody, wanted root"},
		},
		{
			name: "group", resource: loadBalancer, thing: "lb-0",
			hurt: on("lb-0", "chgrp nogroup /etc/haproxy/kubernetes-ca.crt"), look: file("lb-0", "/etc/haproxy/kubernetes-ca.crt"),
			says: []string{"file /etc/haproxy/kubernetes-ca.crt: group nogroup, wanted root"},
		},
		{
			name: "file missing", resource: controlPlane, thing: "controller-1",
			hurt: on("controller-1", "rm /etc/kubernetes/audit-policy.yaml"), look: file("controller-1", "/etc/kubernetes/audit-policy.yaml"),
			says: []string{"file /etc/kubernetes/audit-policy.yaml: missing"}, restarts: []string{"controller-1/kube-apiserver"},
		},
		{
			name: "file made a link", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "cd /etc/kubernetes && cp kube-proxy.yaml /root/hand.yaml && ln -sf /root/hand.yaml kube-proxy.yaml"), look: file("worker-1", "/etc/kubernetes/kube-proxy.yaml"),
			says: []string{"file /etc/kubernetes/kube-proxy.yaml: is a symbolic link, wanted a regular file"}, restarts: []string{"worker-1/kube-proxy"},
		},
		{
			name: "directory open to all", resource: controlPlane, thing: "controller-2",
			hurt: on("controller-2", "chmod 0777 /etc/kubernetes/pki"), look: see("controller-2", "stat -c %a /etc/kubernetes/pki"),
			says: []string{"directory /etc/kubernetes/pki: mode 0777, wanted 0755"},
		},
		{
			name: "drop-in that overrides a unit", resource: etcdCluster, thing: "controller-2",
			hurt: on("controller-2", `mkdir -p "$(dirname `+dropIn+`)" && printf '[Service]\nEnvironment=BY=HAND\n' > `+dropIn+` && systemctl daemon-reload`),
			look: see("controller-2", "systemctl show -P DropInPaths etcd"),
			says: []string{"drop-in " + dropIn + ": not wanted, changes etcd.service"}, restarts: []string{"controller-2/etcd"},
		},
		{
			name: "sysctl", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "sysctl -q net.ipv4.ip_forward=0"), look: see("worker-1", "sysctl -n net.ipv4.ip_forward"),
			says: []string{`sysctl net\.ipv4\.ip_forward: 0, wanted 1`},
		},
		{
			name: "HAProxy backend", resource: loadBalancer, thing: "lb-0",
			hurt: on("lb-0", "sed -i /controller-2/d /etc/haproxy/haproxy.cfg && systemctl reload haproxy"),
			look: see("lb-0", "echo 'show servers state' | socat - /run/haproxy/admin.sock | grep -o 'controller-[0-9]'"),
			says: []string{"file /etc/haproxy/haproxy.cfg: " + content}, // reloaded: connections stay
		},
		{
			name: "kubeconfig edited", resource: controlPlane, thing: "controller-0",
			hurt: on("controller-0", "sed -i s/6443/6444/ /etc/kubernetes/kube-scheduler.kubeconfig"), look: file("controller-0", "/etc/kubernetes/kube-scheduler.kubeconfig"),
			says: []string{"file /etc/kubernetes/kube-scheduler.kubeconfig: " + content}, restarts: []string{"controller-0/kube-scheduler"},
		},
		{
			name: "kubeconfig missing", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "rm /etc/kubernetes/kubelet.kubeconfig"), look: file("worker-1", "/etc/kubernetes/kubelet.kubeconfig"),
			says: []string{"file /etc/kubernetes/kubelet.kubeconfig: missing"}, restarts: []string{"worker-1/kubelet"},
		},
	}
}

func units() []damage {
	const property = "/etc/systemd/system.control/kubelet.service.d/50-CPUWeight.conf"
	return []damage{
		{
			name: "stopped", resource: controlPlane, thing: "controller-0",
			hurt: on("controller-0", "systemctl stop kube-scheduler"), look: unit("controller-0", "kube-scheduler"),
			says: []string{"unit kube-scheduler.service: stopped, wanted running"}, restarts: []string{"controller-0/kube-scheduler"},
		},
		{
			name: "etcd stopped", resource: etcdCluster, thing: "controller-2",
			hurt: on("controller-2", "systemctl stop etcd"), look: unit("controller-2", "etcd"),
			says: []string{"unit etcd.service: stopped, wanted running"}, restarts: []string{"controller-2/etcd"},
		},
		{
			name: "disabled", resource: controlPlane, thing: "controller-1",
			hurt: on("controller-1", "systemctl disable kube-controller-manager"), look: unit("controller-1", "kube-controller-manager"),
			says: []string{"unit kube-controller-manager.service: disabled, wanted enabled"},
		},
		{
			name: "masked", resource: loadBalancer, thing: "lb-0",
			hurt: on("lb-0", "systemctl mask haproxy"), look: unit("lb-0", "haproxy"),
			says: []string{"unit haproxy.service: masked, wanted enabled"},
		},
		{
			name: "stopped and masked over its file", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "systemctl stop kube-proxy && ln -sf /dev/null /etc/systemd/system/kube-proxy.service && systemctl daemon-reload"), look: unit("worker-0", "kube-proxy"),
			says: []string{
				"file /etc/systemd/system/kube-proxy.service: is a symbolic link, wanted a regular file",
				"unit kube-proxy.service: masked, wanted enabled", "unit kube-proxy.service: stopped, wanted running",
			},
			restarts: []string{"worker-0/kube-proxy"},
		},
		{
			name: "failed", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", `d=/run/systemd/system/kube-proxy.service.d
mkdir -p $d && printf '[Service]\nRestart=no\n' > $d/hand.conf && systemctl daemon-reload
systemctl kill -s KILL kube-proxy
until systemctl is-failed -q kube-proxy; do sleep .05; done
rm -r $d && systemctl daemon-reload`), look: unit("worker-1", "kube-proxy"),
			says: []string{`unit kube-proxy.service: failed \(signal\), wanted running`}, restarts: []string{"worker-1/kube-proxy"},
		},
		{
			name: "property set", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "systemctl set-property kubelet.service CPUWeight=50"), look: see("worker-0", "systemctl show -P DropInPaths kubelet"),
			says: []string{"drop-in " + property + ": not wanted, changes kubelet.service"}, restarts: []string{"worker-0/kubelet"},
		},
	}
}

func programs() []damage {
	return []damage{
		{
			name: "replaced", resource: controlPlane, thing: "controller-2",
			hurt: on("controller-2", "cd /usr/local/bin && cp /bin/true hand && mv hand kube-controller-manager"), look: file("controller-2", "/usr/local/bin/kube-controller-manager"),
			says: []string{`binary /usr/local/bin/kube-controller-manager: truncated to \d+ bytes, wanted kube-controller-manager \S+ \(\d+ bytes\)`}, restarts: []string{"controller-2/kube-controller-manager"},
		},
		{
			name: "one byte changed", resource: controlPlane, thing: "controller-0",
			hurt: on("controller-0", "cd /usr/local/bin && cp -p kube-scheduler hand && printf X | dd of=hand bs=1 seek=4096 conv=notrunc status=none && mv hand kube-scheduler"), look: file("controller-0", "/usr/local/bin/kube-scheduler"),
			says: []string{"binary /usr/local/bin/kube-scheduler: " + content}, restarts: []string{"controller-0/kube-scheduler"},
		},
		{
			name: "truncated", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "cd /usr/local/bin && cp -p kube-proxy hand && truncate -s 1000 hand && mv hand kube-proxy"), look: file("worker-0", "/usr/local/bin/kube-proxy"),
			says: []string{`binary /usr/local/bin/kube-proxy: truncated to 1000 bytes, wanted kube-proxy \S+ \(\d+ bytes\)`}, restarts: []string{"worker-0/kube-proxy"},
		},
		{
			name: "missing", resource: etcdCluster, thing: "controller-0",
			hurt: on("controller-0", "rm /usr/local/bin/etcdctl"), look: file("controller-0", "/usr/local/bin/etcdctl"),
			says: []string{`binary /usr/local/bin/etcdctl: missing, wanted etcd \S+`},
		},
		{
			name: "not executable", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "chmod a-x /opt/cni/bin/bridge"), look: file("worker-1", "/opt/cni/bin/bridge"),
			says: []string{"binary /opt/cni/bin/bridge: not executable: mode 0644, wanted 0755"},
		},
	}
}

// certificates restart nothing: every component reads its own anew by itself.
func certificates() []damage {
	return []damage{
		{
			name: "foreign certificate", resource: controlPlane, thing: "controller-1",
			hurt: on("controller-1", "cd /etc/kubernetes/pki && openssl req -x509 -new -key kube-controller-manager.key -subj /CN=by-hand -days 30 -out kube-controller-manager.crt"),
			look: see("controller-1", "cd /etc/kubernetes/pki && openssl verify -CAfile ca.crt kube-controller-manager.crt 2>&1; true"),
			says: []string{
				"file /etc/kubernetes/pki/kube-controller-manager.crt: " + content,
				`certificate /etc/kubernetes/pki/kube-controller-manager.crt: common name is "by-hand", wanted .*`,
			},
		},
		{
			name: "expired certificate", resource: workerPool, thing: "worker-1",
			hurt: expire,
			look: see("worker-1", "cd /etc/kubernetes/pki && openssl verify -CAfile node-ca.crt kubelet.crt 2>&1; true"),
			says: []string{
				"file /etc/kubernetes/pki/kubelet.crt: " + content,
				`certificate /etc/kubernetes/pki/kubelet.crt: expired on \S+`,
			},
			restarts: []string{"worker-1/kubelet"},
		},
		{
			name: "foreign key", resource: etcdCluster, thing: "controller-2",
			hurt: on("controller-2", "cd /etc/etcd/pki && openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out peer.key"),
			look: see("controller-2", "cd /etc/etcd/pki && openssl x509 -noout -pubkey -in peer.crt > /tmp/a && openssl pkey -pubout -in peer.key > /tmp/b && cmp -s /tmp/a /tmp/b && echo pair; rm /tmp/a /tmp/b"),
			says: []string{"file /etc/etcd/pki/peer.key: differs"},
		},
		{
			name: "foreign authority", resource: loadBalancer, thing: "lb-0",
			hurt: on("lb-0", "cd /tmp && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout hand.key -subj /CN=by-hand -out /etc/haproxy/kubernetes-ca.crt 2>&1 && rm hand.key"),
			look: file("lb-0", "/etc/haproxy/kubernetes-ca.crt"),
			says: []string{"file /etc/haproxy/kubernetes-ca.crt: " + content},
		},
	}
}

// expire puts a certificate in place of a kubelet's that differs in one thing
// only: it has expired. The authority and the key are the cluster's own.
func expire(t *testing.T, w *world) {
	blocks := regexp.MustCompile(`(?s)-----BEGIN.*?-----END [A-Z ]+-----\n`)
	parse := func(machine, script string) []*pem.Block {
		var out []*pem.Block
		for _, b := range blocks.FindAllString(w.Sh(t, machine, "cd /etc/kubernetes/pki && "+script), -1) {
			block, _ := pem.Decode([]byte(b))
			out = append(out, block)
		}
		return out
	}
	authority := parse("controller-0", "cat ca.crt ca.key")
	ca, err := x509.ParseCertificate(authority[0].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(authority[1].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(parse("worker-1", "cat kubelet.crt")[0].Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, cert.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	w.Sh(t, "worker-1", "cat > /etc/kubernetes/pki/kubelet.crt <<'END'\n"+string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+"END\n")
}
