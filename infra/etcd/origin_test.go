package etcd

import (
	"encoding/hex"
	"testing"
)

// TestParseOrigin reads the beginning of a log that etcd 3.6.16 has written.
func TestParseOrigin(t *testing.T) {
	t.Parallel()
	head, err := hex.DecodeString("040000000000008408041000000000001e000000000000820801109bc3f5f70f1a1408e79dafbcaea1aabb5c10aceb81f98eb1c0b753" +
		"00000e00000000000082080510f1cdd1b40f1a0408001000")
	if err != nil {
		t.Fatal(err)
	}
	want := Origin{Member: 6662698563040693991, Cluster: 6012025715201963436}
	if got, err := ParseOrigin(head); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range 54 { // the record ends there
		if got, err := ParseOrigin(head[:n]); err == nil {
			t.Errorf("the first %d bytes: %+v", n, got)
		}
	}
	for name, head := range map[string][]byte{"preallocated": make([]byte, OriginBytes), "text": []byte("this is no log at all, whoever wrote it"), "no metadata": head[56:]} {
		if got, err := ParseOrigin(head); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
