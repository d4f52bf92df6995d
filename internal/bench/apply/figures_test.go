package apply

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []time.Duration
		want time.Duration
	}{{[]time.Duration{7}, 7}, {[]time.Duration{9, 1, 5}, 5}, {[]time.Duration{8, 2, 4, 100}, 6}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median of %v is %d, want %d", c.of, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	of := func(side, what string, seconds ...time.Duration) (out figures) {
		for n, s := range seconds {
			out = append(out, measurement{Side: side, What: what, Round: n + 1, Took: s * time.Second, Processors: 2 * s * time.Second})
		}
		return out
	}
	sides := []string{sideKubeadm, sideApply}
	got := slices.Concat(of(sideKubeadm, whatCluster, 70, 50, 60), of(sideApply, whatCluster, 24, 90, 27), of(sideApply, whatWorker, 5, 6, 7)).text(sides, "a computer")
	for _, want := range []string{
		"round 2  kubeadm  cluster            50.0 s, processors busy for  100.0 s\n",
		"median   kubeadm  cluster            60.0 s, processors busy for  120.0 s\n",
		"median   apply    cluster            27.0 s, processors busy for   54.0 s\n",
		"ratio    apply / kubeadm: time 0.45, processors 0.45\n",
		"median   apply    one more worker     6.0 s, processors busy for   12.0 s\n",
		"\na computer\n", "  kubeadm   from the start", "  apply     a whole",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Count(got, "ratio") != 1 || strings.Contains(got, "unstaged") {
		t.Errorf("more than was measured:\n%s", got)
	}
}

func TestCAHash(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(key)
	got, err := caHash(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if want := "sha256:" + hex.EncodeToString(sum[:]); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	if _, err := caHash([]byte("no PEM")); err == nil {
		t.Error("a text that is no certificate has a hash")
	}
}

func TestWriteTar(t *testing.T) {
	from := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(from, []byte("from this computer"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, []machineFile{
		{path: "etc/a", mode: 0o644, content: []byte("content")},
		{path: "opt/bench/program", mode: 0o755, from: from},
	}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for tr := tar.NewReader(&archive); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h.FileInfo().Mode().String() + " " + string(content)
	}
	if found["etc/a"] != "-rw-r--r-- content" || found["opt/bench/program"] != "-rwxr-xr-x from this computer" {
		t.Errorf("archive: %v", found)
	}
	if err := writeTar(io.Discard, []machineFile{{path: "x", from: "/no/such/file"}}); err == nil {
		t.Error("a file that does not exist is archived")
	}
}
