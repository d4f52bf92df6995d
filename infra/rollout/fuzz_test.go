package rollout

import "testing"

// FuzzVersions checks the reader of what programs say of their version.
func FuzzVersions(f *testing.F) {
	f.Add([]byte("Kubernetes v1.36.4\nx"))
	f.Add([]byte("etcd Version: 3.6.16"))
	f.Fuzz(func(t *testing.T, said []byte) {
		_ = release(said)
		_ = foundIn(map[string][]byte{"/usr/local/bin/etcd": said}, []string{"/usr/local/bin/etcd"})
	})
}
