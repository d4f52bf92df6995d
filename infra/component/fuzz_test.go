package component

import (
	"maps"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
)

// FuzzRefusal checks what is made of the output of a rehearsed program.
func FuzzRefusal(f *testing.F) {
	f.Add(1, "E1120 20:21:41.741862    1011 run.go:72] \"command failed\" err=<\n\ta\n >\n")
	f.Add(1, "F1120 20:21:41.741862    1011 run.go:72] \"command failed\" err=\"x \\\"y\"\n")
	f.Add(2, "flag provided but not defined: -x\nError: a\npanic: b")
	f.Add(255, `{"level":"fatal","msg":"a","error":"b"}`)
	f.Fuzz(func(t *testing.T, status int, output string) {
		if got := Refusal(status, output, host.Complaint(output)); len(got) > maxComplaint+25 {
			t.Errorf("%d bytes", len(got))
		}
	})
}

// FuzzReadBack checks that no file on a machine makes an import panic. which chooses the file.
func FuzzReadBack(f *testing.F) {
	// Settings that make every program have a file.
	etcd, control, worker := etcdSpec(f), controlPlaneSpec(f), workerSpec(f)
	worker.Containerd.Registries = registry.Registries{"quay.io": {{URL: "http://a"}, {URL: "https://b", User: "reader", Password: "swordfish"}}}
	founds := []Found{}
	for _, render := range []func() (Machine, error){
		func() (Machine, error) { return Etcd(etcd, controllers[0]) },
		func() (Machine, error) { return ControlPlane(control, controllers[0]) },
		func() (Machine, error) { return Workers(worker)(worker0) },
	} {
		m, err := render()
		if err != nil {
			f.Fatal(err)
		}
		founds = append(founds, foundOf(m))
	}
	for i, found := range founds {
		for which, path := range slices.Sorted(maps.Keys(found.Files)) {
			f.Add(i, which, string(found.Files[path]), "1.36.4")
		}
	}
	f.Fuzz(func(t *testing.T, i, which int, content, release string) {
		i, which = max(0, i)%len(founds), max(0, which)
		found := Found{Files: maps.Clone(founds[i].Files), Releases: maps.Clone(founds[i].Releases)}
		paths := slices.Sorted(maps.Keys(found.Files))
		found.Files[paths[which%len(paths)]] = []byte(content)
		for program := range found.Releases {
			found.Releases[program] = release
		}
		_, _ = etcd.Read(controllers[0], found)
		_, _ = control.Read(controllers[0], found)
		_, _ = worker.Read(worker0, found)
		_, _ = Cluster{}.Read(found)
		_, _ = LoadBalancerSpec{}.Read(found)
		_, _ = EtcdBackupSpec{Members: controllers}.Read(found)
	})
}
