package keycopy

import "testing"

// FuzzCopy checks the reader of a copy that has been decrypted.
func FuzzCopy(f *testing.F) {
	f.Add([]byte(`{"format":"k8s-from-scratch/key-copy","version":1,"cluster":"demo","order":{},"values":{"kubernetes-ca.crt":"x","encryption.key":"y"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, err := unmarshal(raw); err == nil {
			_, _ = c.String(), c.Name()
		}
	})
}
