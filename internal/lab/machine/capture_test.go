package machine

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCapture boots a machine from what another one has left on its disk.
func TestCapture(t *testing.T) {
	l := newTestLab(t, Releases[0])
	h := l.add("")
	l.start(h)
	c := l.await(h)
	const change = `
echo kept > /etc/mark
rm /etc/issue
rm -r /usr/share/doc/bash && mkdir /usr/share/doc/bash && echo new > /usr/share/doc/bash/new
mkdir -p /var/lib/containerd/store && echo blob > /var/lib/containerd/store/blob && chown 7:8 /var/lib/containerd/store/blob && chmod 0640 /var/lib/containerd/store/blob
`
	if out, err := run(c, change); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cacheDir, id := filepath.Join(l.stateDir, "cache"), "ami-00000000000000001"
	if _, err := Capture(t.Context(), l.stateDir, h.ID, cacheDir, id); err == nil || !strings.Contains(err.Error(), "runs") {
		t.Fatalf("capturing a machine that runs: %v", err)
	}
	if err := l.Stop(t.Context(), h.ID); err != nil {
		t.Fatal(err)
	}
	img, err := Capture(t.Context(), l.stateDir, h.ID, cacheDir, id)
	if err != nil {
		t.Fatal(err)
	}
	if again, present := CapturedImage(cacheDir, id); !present || again != img {
		t.Errorf("the cache has %v (%v), wanted %v", again, present, img)
	}
	l.Publish(img)
	made := l.add("")
	made.Image = id
	l.start(made)
	out, err := run(l.await(made), `cat /etc/mark; test ! -e /etc/issue; ls /usr/share/doc/bash; stat -c '%u %g %a' /var/lib/containerd/store/blob; cat /var/lib/containerd/store/blob; hostname`)
	if want := "kept\nnew\n7 8 640\nblob\n" + made.Hostname; err != nil || out != want {
		t.Errorf("%q, %v; wanted %q", out, err, want)
	}
	if removed, err := PruneCaptured(cacheDir, []string{img.Dir}); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if removed, err := PruneCaptured(cacheDir, nil); err != nil || len(removed) != 1 {
		t.Errorf("removed %v, %v; wanted the image, which nobody uses", removed, err)
	}
}
