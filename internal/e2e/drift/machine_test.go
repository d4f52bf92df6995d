package drift_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"regexp"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// The resources of the example that own things on machines.
const (
	etcdCluster  = "k8s_etcd_cluster.this"
	controlPlane = "k8s_control_plane.this"
	workerPool   = "k8s_worker_pool.this"
	loadBalancer = "k8s_lb.this"
)

// on and see run scripts from the console: a login by SSH costs ten times as much, and there are hundreds.
func on(machine, script string) func(*testing.T, *world) {
	return func(t *testing.T, _ *world) { suite.Console(t, machine, script) }
}

func see(machine, script string) func(*testing.T, *world) string {
	return func(t *testing.T, _ *world) string { return suite.Console(t, machine, script) }
}

// file returns a look at everything about a file.
func file(machine, path string) func(*testing.T, *world) string {
	return see(machine, "stat -c '%F %a %U:%G' "+path+"; sha256sum "+path+"; true")
}

// unit returns a look at whether a unit runs and is enabled.
func unit(machine, name string) func(*testing.T, *world) string {
	return see(machine, "systemctl is-active "+name+"; systemctl is-enabled "+name+"; true")
}

const content = `content differs \(sha256 found [0-9a-f]{12}\.\., wanted [0-9a-f]{12}\.\.\)`

// oneMore is the finding about a text to which a line was added.
const oneMore = `content differs\n  not wanted: # \(hidden\) \(hidden\)`

// ofFile damages a file, which is $f in the script. found is the finding in the plan; units are
// restarted by the repair.
func ofFile(name, resource, machine, path, script, found string, units ...string) damage {
	return damage{
		name: name, resource: resource, thing: machine,
		hurt: on(machine, "f="+path+"; "+script), look: file(machine, path),
		says: []string{"file " + path + ": " + found}, restarts: harness.On([]string{machine}, units...),
	}
}

// ofBinary is ofFile for a program, or something else that was downloaded.
func ofBinary(name, resource, machine, path, script, found string, units ...string) damage {
	d := ofFile(name, resource, machine, path, script, found, units...)
	d.says = []string{"binary " + path + ": " + found}
	return d
}

// ofUnit damages a unit, which is $u in the script.
func ofUnit(name, resource, machine, u, script, found string, units ...string) damage {
	return damage{
		name: name, resource: resource, thing: machine,
		hurt: on(machine, "u="+u+"; "+script), look: unit(machine, u),
		says: []string{"unit " + u + ".service: " + found}, restarts: harness.On([]string{machine}, units...),
	}
}

func files() []damage {
	const dropIn = "/etc/systemd/system/etcd.service.d/10-hand.conf"
	return []damage{
		ofFile("file edited", workerPool, "worker-0", "/etc/kubernetes/kubelet.yaml",
			"echo '# by hand' >> $f", oneMore, "kubelet"),
		ofFile("unit file edited", workerPool, "worker-0", "/etc/systemd/system/kube-proxy.service",
			"echo '# by hand' >> $f && systemctl daemon-reload", oneMore, "kube-proxy"),
		ofFile("owner", controlPlane, "controller-0", "/etc/kubernetes/kube-scheduler.yaml",
			"chown nobody $f", "owner nobody, wanted root"),
		ofFile("group", loadBalancer, "lb-0", "/etc/haproxy/kubernetes-ca.crt",
			"chgrp nogroup $f", "group nogroup, wanted root"),
		ofFile("file made a link", workerPool, "worker-1", "/etc/kubernetes/kube-proxy.yaml",
			"cp $f /root/hand.yaml && ln -sf /root/hand.yaml $f", "is a symbolic link, wanted a regular file", "kube-proxy"),
		ofFile("kubeconfig edited", controlPlane, "controller-0", "/etc/kubernetes/kube-scheduler.kubeconfig",
			"sed -i s/6443/6444/ $f", content, "kube-scheduler"),
		{
			// The running server refuses to load the repaired file.
			name: "anonymous access", resource: controlPlane, thing: "controller-1",
			hurt: on("controller-1", `sed -i '/conditions:/a\  - path: /version' /etc/kubernetes/authentication.yaml && systemctl restart kube-apiserver
for i in $(seq 60); do curl -skf https://127.0.0.1:6443/readyz >/dev/null && exit 0; sleep 1; done; exit 1`),
			look: see("controller-1", "sha256sum /etc/kubernetes/authentication.yaml; curl -sk -o /dev/null -w '%{http_code}' https://127.0.0.1:6443/version"),
			says: []string{`file /etc/kubernetes/authentication\.yaml: content differs(?s:.*)`}, restarts: []string{"controller-1/kube-apiserver"},
		},
		{
			name: "directory open to all", resource: controlPlane, thing: "controller-2",
			hurt: on("controller-2", "chmod 0777 /etc/kubernetes/pki"), look: see("controller-2", "stat -c %a /etc/kubernetes/pki"),
			says: []string{"directory /etc/kubernetes/pki: mode 0777, wanted 0755"},
		},
		{
			name: "packets of pods are not forwarded", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "sysctl -q net.ipv4.ip_forward=0"), look: see("worker-1", "sysctl -n net.ipv4.ip_forward"),
			says: []string{`sysctl net\.ipv4\.ip_forward: 0, wanted 1`},
		},
		{
			name: "drop-in that overrides a unit", resource: etcdCluster, thing: "controller-2",
			hurt: on("controller-2", `mkdir -p "$(dirname `+dropIn+`)" && printf '[Service]\nEnvironment=BY=HAND\n' > `+dropIn+` && systemctl daemon-reload`),
			look: see("controller-2", "systemctl show -P DropInPaths etcd"),
			says: []string{"drop-in " + dropIn + ": not wanted, changes etcd.service"}, restarts: []string{"controller-2/etcd"},
		},
	}
}

func units() []damage {
	const podResolvConf = "/run/kubernetes/resolv.conf"
	const property = "/etc/systemd/system.control/kubelet.service.d/50-CPUWeight.conf"
	return []damage{
		ofUnit("stopped", controlPlane, "controller-0", "kube-scheduler", "systemctl stop $u", "stopped, wanted running", "kube-scheduler"),
		ofUnit("disabled", controlPlane, "controller-1", "kube-controller-manager", "systemctl disable $u", "disabled, wanted enabled"),
		ofUnit("masked", loadBalancer, "lb-0", "haproxy", "systemctl mask $u", "masked, wanted enabled"),
		ofUnit("failed", workerPool, "worker-1", "kube-proxy", `d=/run/systemd/system/$u.service.d
mkdir -p $d && printf '[Service]\nRestart=no\n' > $d/hand.conf && systemctl daemon-reload
systemctl kill -s KILL $u
until systemctl is-failed -q $u; do sleep .05; done
rm -r $d && systemctl daemon-reload`, `failed \(signal\), wanted running`, "kube-proxy"),
		{
			name: "property set", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "systemctl set-property kubelet.service CPUWeight=50"), look: see("worker-0", "systemctl show -P DropInPaths kubelet"),
			says: []string{"drop-in " + property + ": not wanted, changes kubelet.service"}, restarts: []string{"worker-0/kubelet"},
		},
		{
			name: "resolv.conf of pods leads elsewhere", resource: workerPool, thing: "worker-1",
			hurt: on("worker-1", "ln -sfT /etc/hosts "+podResolvConf), look: see("worker-1", "readlink "+podResolvConf),
			says:     []string{"unit kubelet.service: " + podResolvConf + ` points to /etc/hosts, wanted /\S+/resolv\.conf`},
			restarts: []string{"worker-1/kubelet"},
		},
		{
			name: "rules of pod egress gone", resource: workerPool, thing: "worker-0",
			hurt: on("worker-0", "nft flush table ip pod-egress"), look: see("worker-0", "nft list table ip pod-egress"),
			says: []string{"unit pod-egress.service: nftables lacks rules of table ip pod-egress"},
		},
	}
}

func programs() []damage {
	return []damage{
		ofBinary("one byte changed", controlPlane, "controller-0", "/usr/local/bin/kube-scheduler",
			"cp -p $f $f.hand && printf X | dd of=$f.hand bs=1 seek=4096 conv=notrunc status=none && mv $f.hand $f", content, "kube-scheduler"),
		ofBinary("truncated", workerPool, "worker-0", "/usr/local/bin/kube-proxy",
			"cp -p $f $f.hand && truncate -s 1000 $f.hand && mv $f.hand $f", `truncated to 1000 bytes, wanted kube-proxy \S+ \(\d+ bytes\)`, "kube-proxy"),
		ofBinary("missing", etcdCluster, "controller-0", "/usr/local/bin/etcdctl",
			"rm $f", `missing, wanted etcd \S+`),
		ofBinary("not executable", workerPool, "worker-1", "/opt/cni/bin/bridge",
			"chmod a-x $f", "not executable: mode 0644, wanted 0755"),
	}
}

// certificates are damages whose repair restarts nothing, since every component reloads its
// certificate.
func certificates() []damage {
	return []damage{
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
		ofFile("foreign authority", loadBalancer, "lb-0", "/etc/haproxy/kubernetes-ca.crt",
			"cd /tmp && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout hand.key -subj /CN=by-hand -out $f 2>&1 && rm hand.key", content),
	}
}

// expire replaces a kubelet's certificate by one that differs only in having expired. It has the
// cluster's authority and the same key.
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
