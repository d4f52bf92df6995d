package component

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSpotWorker: a Spot instance has one unit more than another worker, which restarts when its script changes.
func TestSpotWorker(t *testing.T) {
	spot := worker0
	spot.Spot = true
	plain, got := must(t)(Workers(workerSpec(t))(worker0)), must(t)(Workers(workerSpec(t))(spot))
	var more []string
	for _, p := range got.State.Paths() {
		if !slices.Contains(plain.State.Paths(), p) {
			more = append(more, p)
		}
	}
	slices.Sort(more)
	if want := []string{unitPath(SpotInterruptionUnit), spotInterruptionPath}; !slices.Equal(more, want) {
		t.Errorf("more paths: %q, want %q", more, want)
	}
	if u := unitOf(t, got, SpotInterruptionUnit); !u.Enabled || !u.Active || !slices.Contains(u.RestartOn, spotInterruptionPath) || len(got.State.Units) != len(plain.State.Units)+1 {
		t.Errorf("%+v of %d units", u, len(got.State.Units))
	}
	if !slices.Contains(got.State.Packages, "python3") || slices.Contains(plain.State.Packages, "python3") {
		t.Errorf("packages %q and %q", got.State.Packages, plain.State.Packages)
	}
	golden(t, "spot-interruption.service", []byte(fileOf(t, got, unitPath(SpotInterruptionUnit))))
}

// spotServers are a metadata service and an API server of one node.
type spotServers struct {
	mu      sync.Mutex
	token   string // the valid one
	tokens  int
	end     time.Time // of the interruption; zero without one
	looks   int
	closed  bool            // the node is unschedulable
	patch   string          // last change of the node
	here    map[string]any  // pods by name
	guarded map[string]bool // by a PodDisruptionBudget
	asked   []string        // "evict web"
	failing int             // the number of requests to the API that fail from now on
	later   string          // the file that says how many seconds the script's clock is ahead
}

func (s *spotServers) metadata(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "300":
		s.tokens++
		s.token = fmt.Sprint("token-", s.tokens)
		_, _ = w.Write([]byte(s.token))
	case r.Header.Get("X-aws-ec2-metadata-token") != s.token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/latest/meta-data/spot/instance-action" || s.end.IsZero():
		s.looks++
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = fmt.Fprintf(w, `{"action":"terminate","time":%q}`, s.end.UTC().Format("2006-01-02T15:04:05Z"))
	}
}

func (s *spotServers) api(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	if s.failing > 0 {
		s.failing--
		answer(http.StatusInternalServerError, map[string]string{"message": "no leader"})
		return
	}
	body := new(bytes.Buffer)
	_, _ = body.ReadFrom(r.Body)
	name := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"), "/")[0]
	switch r.Method + " " + r.URL.RequestURI() {
	case "GET /api/v1/nodes/worker-0":
		answer(http.StatusOK, map[string]any{"spec": map[string]any{"unschedulable": s.closed}})
	case "PATCH /api/v1/nodes/worker-0":
		s.closed, s.patch = true, r.Header.Get("Content-Type")+" "+body.String()
		answer(http.StatusOK, map[string]any{})
	case "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dworker-0":
		items := []any{}
		for _, p := range s.here {
			items = append(items, p)
		}
		answer(http.StatusOK, map[string]any{"items": items})
	case "POST /api/v1/namespaces/default/pods/" + name + "/eviction":
		if want := fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": "default"}}`, name); body.String() != want {
			answer(http.StatusBadRequest, map[string]string{"message": body.String()})
			return
		}
		s.asked = append(s.asked, "evict "+name)
		if s.guarded[name] {
			answer(http.StatusTooManyRequests, map[string]string{"message": "it would violate the budget"})
			return
		}
		delete(s.here, name)
		answer(http.StatusCreated, map[string]any{})
	case "DELETE /api/v1/namespaces/default/pods/" + name:
		s.asked = append(s.asked, "delete "+name)
		delete(s.here, name)
		answer(http.StatusOK, map[string]any{})
	default:
		answer(http.StatusNotFound, map[string]string{"message": "no such path"})
	}
}

// start runs the script, with short pauses and a clock of its own, until the test ends. It returns a
// function that returns the script's output.
func (s *spotServers) start(t *testing.T) func() string {
	t.Helper()
	imds, api := httptest.NewServer(http.HandlerFunc(s.metadata)), httptest.NewUnstartedServer(http.HandlerFunc(s.api))
	api.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	api.StartTLS()
	t.Cleanup(imds.Close)
	t.Cleanup(api.Close)
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	script := string(spotInterruptionScript)
	s.later = filepath.Join(dir, "later")
	s.pass(t, 0)
	for what, instead := range map[string]string{"POLL = 5 ": "POLL = 0.05 ", "RETRY = 2 ": "RETRY = 0.05 ", "timeout=2)": "timeout=60)", "timeout=10,": "timeout=60,",
		"time.time()": fmt.Sprintf("(time.time() + float(open(%q).read()))", s.later)} {
		if !strings.Contains(script, what) {
			t.Fatalf("the script has no %q", what)
		}
		script = strings.ReplaceAll(script, what, instead)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "python3", write("spot-interruption", []byte(script)), "worker-0", api.URL, write("ca.crt", block("CERTIFICATE", api.Certificate().Raw)),
		write("kubelet.crt", block("CERTIFICATE", der)), write("kubelet.key", block("PRIVATE KEY", private)), imds.URL)
	said := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	return said.String
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pass sets how far the script's clock is ahead.
func (s *spotServers) pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := os.WriteFile(s.later+".new", fmt.Append(nil, d.Seconds()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.later+".new", s.later); err != nil {
		t.Fatal(err)
	}
}

// until waits until a condition holds, with the servers' lock held.
func (s *spotServers) until(t *testing.T, what string, said func() string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		done := f()
		s.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s; asked %q; it said:\n%s", what, s.asked, said())
		}
	}
}

func spotPod(name string, meta map[string]any, phase string) map[string]any {
	meta["name"], meta["namespace"] = name, "default"
	return map[string]any{"metadata": meta, "status": map[string]any{"phase": phase}}
}

// TestSpotInterruption runs the script: it does nothing before the notice, then cordons the node,
// evicts its pods, and at last deletes those that a budget keeps.
func TestSpotInterruption(t *testing.T) {
	owner := func(kind string) map[string]any {
		return map[string]any{"ownerReferences": []any{map[string]any{"kind": kind, "controller": true}}}
	}
	s := &spotServers{guarded: map[string]bool{"guarded": true}, failing: 1, here: map[string]any{
		"web": spotPod("web", owner("ReplicaSet"), "Running"), "guarded": spotPod("guarded", owner("ReplicaSet"), "Running"),
		"agent": spotPod("agent", owner("DaemonSet"), "Running"), "done": spotPod("done", map[string]any{}, "Succeeded"),
		"static": spotPod("static", map[string]any{"annotations": map[string]any{"kubernetes.io/config.mirror": "x"}}, "Running"),
		"ending": spotPod("ending", map[string]any{"deletionTimestamp": "2026-05-01T12:00:00Z"}, "Running"),
	}}
	said := s.start(t)
	s.until(t, "it looks for a notice", said, func() bool { return s.looks > 2 })
	s.mu.Lock()
	if s.token = "another"; s.closed || len(s.asked) > 0 || s.tokens != 1 {
		t.Errorf("before the notice: closed %v, asked %q, %d tokens", s.closed, s.asked, s.tokens)
	}
	s.end = time.Now().Add(10 * time.Minute)
	s.mu.Unlock()
	s.until(t, "the web pod leaves", said, func() bool { return slices.Contains(s.asked, "evict web") })
	s.mu.Lock()
	if want := `application/merge-patch+json {"metadata": {"annotations": {"k8s-from-scratch/cordoned": "true"}}, "spec": {"unschedulable": true}}`; s.patch != want {
		t.Errorf("the node is changed by %s", s.patch)
	}
	s.closed = false // as an apply at the wrong time would
	s.mu.Unlock()
	s.until(t, "the node is closed again", said, func() bool { return s.closed })
	s.until(t, "the guarded pod stays in several rounds", said, func() bool { return strings.Count(strings.Join(s.asked, ","), "evict guarded") > 3 })
	s.mu.Lock()
	if slices.Contains(s.asked, "delete guarded") {
		t.Errorf("the guarded pod is deleted in the first half; asked %q", s.asked)
	}
	s.mu.Unlock()
	s.pass(t, 6*time.Minute) // the second half, long before the end
	s.until(t, "the guarded pod is deleted", said, func() bool { return slices.Contains(s.asked, "delete guarded") })
	s.until(t, "it says that it has deleted the guarded pod", said, func() bool { return strings.Contains(said(), "default/guarded: deleted") })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if name := strings.Fields(asked)[1]; name != "web" && name != "guarded" {
			t.Errorf("%s", asked)
		}
	}
	for _, want := range []string{"EC2 interrupts this Spot instance in ", "trying again: GET /api/v1/nodes/worker-0: status 500: no leader", "default/web: evicted", "default/guarded: stays for now: it would violate the budget", "default/guarded: deleted"} {
		if !strings.Contains(said(), want) {
			t.Errorf("it does not say %q:\n%s", want, said())
		}
	}
}

// TestSpotInterruptionOfClosedNode: a node that a person has cordoned keeps that person's mark.
func TestSpotInterruptionOfClosedNode(t *testing.T) {
	s := &spotServers{closed: true, end: time.Now().Add(10 * time.Minute), here: map[string]any{"web": spotPod("web", map[string]any{}, "Running")}}
	said := s.start(t)
	s.until(t, "the pod leaves", said, func() bool { return len(s.here) == 0 })
	if s.mu.Lock(); s.patch != "" {
		t.Errorf("the node was changed: %s", s.patch)
	}
	s.mu.Unlock()
}
