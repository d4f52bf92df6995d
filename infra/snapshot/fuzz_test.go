package snapshot

import "testing"

// FuzzDescription checks the readers of descriptions and of the keys of a bucket.
func FuzzDescription(f *testing.F) {
	f.Add([]byte(`{"format":1,"name":"20260102T030405Z-1234","time":"2026-01-02T03:04:05Z","revision":1234,"size":1,"hash":"1","cluster":"a"}`), "k8s/demo/etcd/20260102T030405Z-1234.json")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if d, err := Parse(text); err == nil {
			_ = Newer(&d, nil)
		}
		_ = Described("k8s/demo/etcd/", []string{key, key})
		_, _ = Time(key)
	})
}
