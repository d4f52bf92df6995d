package mirror

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newTestMirror(t *testing.T, content string) (*Handler, string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "mirror", "host", "a"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "mirror", "host", "a", "file.tgz"), []byte(content), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("outside"), 0o644))
	must(t, os.Symlink("../../secret", filepath.Join(dir, "mirror", "host", "link")))
	m := New(filepath.Join(dir, "mirror"))
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return m, server.URL
}

type answer struct {
	status int
	header http.Header
	body   string
}

// get makes a request and returns the answer, and the error of reading its body.
func get(t *testing.T, method, url string, header ...string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

func TestServesFiles(t *testing.T) {
	m, url := newTestMirror(t, "0123456789")
	for _, tc := range []struct {
		method, path, ranges string
		status               int
		body                 string
		length               int
	}{
		{"GET", "/host/a/file.tgz", "", 200, "0123456789", 10},
		{"HEAD", "/host/a/file.tgz", "", 200, "", 10},
		{"GET", "/host/a/file.tgz", "bytes=2-4", 206, "234", 3},
		{"GET", "/host/a/file.tgz", "bytes=7-", 206, "789", 3},
		{"GET", "/host/a/file.tgz", "bytes=10-", 416, "", -1},
		{"GET", "/host/a/none", "", 404, "", -1},
		{"GET", "/host/a", "", 404, "", -1},
		{"GET", "/", "", 404, "", -1},
		{"GET", "/host/link", "", 404, "", -1},
		{"GET", "/..%2fsecret", "", 404, "", -1},
		{"PUT", "/host/a/file.tgz", "", 405, "", -1},
	} {
		var header []string
		if tc.ranges != "" {
			header = []string{"Range", tc.ranges}
		}
		got, err := get(t, tc.method, url+tc.path, header...)
		must(t, err)
		if got.status != tc.status {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, got.status, tc.status)
		}
		if length := got.header.Get("Content-Length"); tc.status < 300 && (got.body != tc.body || length != strconv.Itoa(tc.length)) {
			t.Errorf("%s %s: %q, length %s; want %q", tc.method, tc.path, got.body, length, tc.body)
		}
	}
	counts := m.Counts()
	if counts["/host/a/file.tgz"] != 4 || counts["/host/a/none"] != 1 {
		t.Errorf("counts %v: want 4 GET requests for the file and 1 for the missing file", counts)
	}
}

func TestFaults(t *testing.T) {
	content := strings.Repeat("0123456789", 20_000)
	half := len(content) / 2
	m, url := newTestMirror(t, content)
	for _, tc := range []struct {
		fault   Fault
		status  int
		body    string
		cutting bool
	}{
		{FaultTruncate, 200, content[:half], false},
		{FaultFlip, 200, content[:half] + string([]byte{content[half] ^ 0xff}) + content[half+1:], false},
		{FaultCut, 200, content[:half], true},
		{FaultMissing, 404, "404 page not found\n", false},
		{FaultNone, 200, content, false},
	} {
		must(t, m.SetFault("host/a/file.tgz", tc.fault))
		got, err := get(t, "GET", url+"/host/a/file.tgz")
		if got.status != tc.status || got.body != tc.body || (err != nil) != tc.cutting {
			t.Errorf("fault %q: %d, %d bytes, error %v", tc.fault, got.status, len(got.body), err)
		}
	}
	must(t, m.SetFault("/host/a/file.tgz", FaultFlip))
	got, err := get(t, "GET", url+"/host/a/file.tgz", "Range", "bytes="+strconv.Itoa(half)+"-"+strconv.Itoa(half+1))
	must(t, err)
	if got.body != string([]byte{content[half] ^ 0xff, content[half+1]}) {
		t.Errorf("range over the flipped byte is %q", got.body)
	}
	if got := m.Faults(); len(got) != 1 || got["/host/a/file.tgz"] != FaultFlip {
		t.Errorf("faults in force: %v", got)
	}
	if err := m.SetFault("/host/a/file.tgz", "melt"); err == nil {
		t.Error("an unknown fault is accepted")
	}
}
