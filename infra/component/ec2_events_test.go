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

// TestEC2Worker: an EC2 instance has one unit more than another worker, which restarts when its script changes.
func TestEC2Worker(t *testing.T) {
	instance := worker0
	instance.InstanceID, instance.DrainOnRebalance = "i-0123456789abcdef0", true
	plain, got := must(t)(Workers(workerSpec(t))(worker0)), must(t)(Workers(workerSpec(t))(instance))
	var more []string
	for _, p := range got.State.Paths() {
		if !slices.Contains(plain.State.Paths(), p) {
			more = append(more, p)
		}
	}
	slices.Sort(more)
	if want := []string{unitPath(EC2EventsUnit), ec2EventsPath}; !slices.Equal(more, want) {
		t.Errorf("more paths: %q, want %q", more, want)
	}
	if u := unitOf(t, got, EC2EventsUnit); !u.Enabled || !u.Active || !slices.Contains(u.RestartOn, ec2EventsPath) || len(got.State.Units) != len(plain.State.Units)+1 {
		t.Errorf("%+v of %d units", u, len(got.State.Units))
	}
	if !slices.Contains(got.State.Packages, "python3") || slices.Contains(plain.State.Packages, "python3") {
		t.Errorf("packages %q and %q", got.State.Packages, plain.State.Packages)
	}
	golden(t, "ec2-events.service", []byte(fileOf(t, got, unitPath(EC2EventsUnit))))
}

// eventServers are a metadata service and an API server of one node.
type eventServers struct {
	mu      sync.Mutex
	token   string // the valid one
	tokens  int
	says    map[string]string // of the metadata service, by path below meta-data
	looks   int
	closed  bool              // the node is unschedulable
	notes   map[string]string // its annotations
	changes []string          // of the node
	here    map[string]any    // pods by name
	guarded map[string]bool   // by a PodDisruptionBudget
	asked   []string          // "evict web"
	failing int               // the number of requests to the API that fail from now on
	later   string            // the file that says how many seconds the script's clock is ahead
}

func (s *eventServers) metadata(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "300":
		s.tokens++
		s.token = fmt.Sprint("token-", s.tokens)
		_, _ = w.Write([]byte(s.token))
	case r.Header.Get("X-aws-ec2-metadata-token") != s.token:
		w.WriteHeader(http.StatusUnauthorized)
	default:
		s.looks++
		text, ok := s.says[strings.TrimPrefix(r.URL.Path, "/latest/meta-data/")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(text))
	}
}

func (s *eventServers) api(w http.ResponseWriter, r *http.Request) {
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
		spec := map[string]any{}
		if s.closed {
			spec["unschedulable"] = true
		}
		answer(http.StatusOK, map[string]any{"metadata": map[string]any{"annotations": s.notes, "resourceVersion": fmt.Sprint(len(s.changes))}, "spec": spec})
	case "PATCH /api/v1/nodes/worker-0":
		var change struct {
			Metadata struct {
				Annotations     map[string]*string
				ResourceVersion string
			}
			Spec map[string]*bool
		}
		if err := json.Unmarshal(body.Bytes(), &change); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			answer(http.StatusBadRequest, map[string]string{"message": body.String()})
			return
		}
		if change.Metadata.ResourceVersion != fmt.Sprint(len(s.changes)) {
			answer(http.StatusConflict, map[string]string{"message": "it has been changed"})
			return
		}
		if closed, changed := change.Spec["unschedulable"]; changed {
			s.closed = closed != nil && *closed
		}
		for name, value := range change.Metadata.Annotations {
			if delete(s.notes, name); value != nil {
				s.notes[name] = *value
			}
		}
		s.changes = append(s.changes, body.String())
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
func (s *eventServers) start(t *testing.T) func() string {
	t.Helper()
	if s.says == nil {
		s.says = map[string]string{}
	}
	if s.notes == nil {
		s.notes = map[string]string{}
	}
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
	script := string(ec2EventsScript)
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
		write("kubelet.crt", block("CERTIFICATE", der)), write("kubelet.key", block("PRIVATE KEY", private)), imds.URL, "rebalance")
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
func (s *eventServers) pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := os.WriteFile(s.later+".new", fmt.Append(nil, d.Seconds()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.later+".new", s.later); err != nil {
		t.Fatal(err)
	}
}

// until waits until a condition holds, with the servers' lock held.
func (s *eventServers) until(t *testing.T, what string, said func() string, f func() bool) {
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

func eventPod(name string, meta map[string]any, phase string) map[string]any {
	meta["name"], meta["namespace"] = name, "default"
	return map[string]any{"metadata": meta, "status": map[string]any{"phase": phase}}
}

// interruption is what the metadata service says of the end of a Spot instance.
func interruption(end time.Time) string {
	return fmt.Sprintf(`{"action":"terminate","time":%q}`, end.UTC().Format("2006-01-02T15:04:05Z"))
}

// scheduled is what the metadata service says of scheduled events: by their ids, when they begin.
func scheduled(state string, events map[string]time.Time) string {
	var out []string
	for id, begins := range events {
		out = append(out, fmt.Sprintf(`{"NotBefore":%q,"Code":"system-reboot","Description":"scheduled reboot","EventId":%q,"NotAfter":%q,"State":%q}`,
			begins.UTC().Format("2 Jan 2006 15:04:05 GMT"), id, begins.Add(2*time.Hour).UTC().Format("2 Jan 2006 15:04:05 GMT"), state))
	}
	return "[" + strings.Join(out, ",") + "]"
}

const (
	eventNote     = "k8s-from-scratch/ec2-event"
	declinedNote  = "k8s-from-scratch/ec2-event-declined"
	actionPath    = "spot/instance-action"
	scheduledPath = "events/maintenance/scheduled"
	rebalancePath = "events/recommendations/rebalance"
)

// set changes what the metadata service says; an empty text is nothing.
func (s *eventServers) set(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.says[path] = text; text == "" {
		delete(s.says, path)
	}
}

func replicaSet() map[string]any {
	return map[string]any{"ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "controller": true}}}
}

// TestSpotInterruption runs the script: it does nothing before the notice, then cordons the node,
// evicts its pods, and at last deletes those that a budget keeps.
func TestSpotInterruption(t *testing.T) {
	agent := map[string]any{"ownerReferences": []any{map[string]any{"kind": "DaemonSet", "controller": true}}}
	s := &eventServers{guarded: map[string]bool{"guarded": true}, here: map[string]any{
		"web": eventPod("web", replicaSet(), "Running"), "guarded": eventPod("guarded", replicaSet(), "Running"),
		"agent": eventPod("agent", agent, "Running"), "done": eventPod("done", map[string]any{}, "Succeeded"),
		"static": eventPod("static", map[string]any{"annotations": map[string]any{"kubernetes.io/config.mirror": "x"}}, "Running"),
		"late":   eventPod("late", map[string]any{"creationTimestamp": "2126-05-01T12:00:00Z"}, "Running"),
		"ending": eventPod("ending", map[string]any{"deletionTimestamp": "2026-05-01T12:00:00Z"}, "Running"),
	}}
	said := s.start(t)
	s.until(t, "it looks for a notice", said, func() bool { return s.looks > 9 })
	s.mu.Lock()
	if s.token = "another"; s.closed || len(s.asked) > 0 || s.tokens != 1 || len(s.changes) > 0 {
		t.Errorf("before the notice: closed %v, asked %q, %d tokens, changes %q", s.closed, s.asked, s.tokens, s.changes)
	}
	s.failing = 1
	s.mu.Unlock()
	s.set(actionPath, interruption(time.Now().Add(10*time.Minute)))
	s.until(t, "the web pod leaves", said, func() bool { return slices.Contains(s.asked, "evict web") })
	s.mu.Lock()
	if s.notes[eventNote] != "spot-interruption" {
		t.Errorf("the node is changed by %s", s.changes)
	}
	s.closed = false // as a person would at the wrong time
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

// TestEventOfClosedNode: a node that a person has cordoned keeps that person's mark, also after the event. If the person opens
// it during an event from which the machine comes back, it stays open.
func TestEventOfClosedNode(t *testing.T) {
	s := &eventServers{closed: true, says: map[string]string{actionPath: interruption(time.Now().Add(10 * time.Minute))}, here: map[string]any{"web": eventPod("web", map[string]any{}, "Running")}}
	said := s.start(t)
	s.until(t, "the pod leaves", said, func() bool { return len(s.here) == 0 })
	s.set(actionPath, "")
	s.looksAgain(t, said)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changes) > 0 || !s.closed {
		t.Errorf("the node was changed: %s", s.changes)
	}
	s.mu.Unlock()
	s.set(rebalancePath, "{}")
	s.looksAgain(t, said)
	s.mu.Lock()
	s.closed = false // by the person
	s.mu.Unlock()
	s.until(t, "it notes that a person has opened the node", said, func() bool { return s.notes[declinedNote] == "rebalance-recommendation" })
	s.looksAgain(t, said)
	s.mu.Lock()
	if s.closed {
		t.Errorf("the node was closed again: %s", s.changes)
	}
}

// booted returns when process 1 was started, from which the script tells what was before a boot.
func booted(t *testing.T) time.Time {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "lstart=", "-p", "1").Output()
	if err != nil {
		t.Skip(err)
	}
	at, err := time.ParseInLocation("Mon Jan _2 15:04:05 2006", strings.Join(strings.Fields(string(out)), " "), time.Local)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestScheduledEvents: the node is drained before the first event that is near, and opened again when EC2 has no such event
// any more. An event that began before the machine was booted, and one that is over, have no effect. One that began
// afterwards has. Budgets hold if the machine comes back, and for a while also if an event that stops it is overdue.
func TestScheduledEvents(t *testing.T) {
	now, boot := time.Now(), booted(t)
	s := &eventServers{guarded: map[string]bool{"guarded": true}, here: map[string]any{"web": eventPod("web", replicaSet(), "Running"), "guarded": eventPod("guarded", replicaSet(), "Running")},
		says: map[string]string{scheduledPath: scheduled("active", map[string]time.Time{"instance-event-far": now.Add(26 * time.Hour), "instance-event-past": boot.Add(-5 * time.Second)})}}
	said := s.start(t)
	s.until(t, "it looks for events", said, func() bool { return s.looks > 9 })
	s.set(scheduledPath, scheduled("completed", map[string]time.Time{"instance-event-near": now.Add(4 * time.Minute)}))
	s.looksAgain(t, said)
	s.mu.Lock()
	if len(s.changes) > 0 || len(s.asked) > 0 {
		t.Errorf("before the event: changes %q, asked %q", s.changes, s.asked)
	}
	s.mu.Unlock()
	s.set(scheduledPath, scheduled("active", map[string]time.Time{"instance-event-near": now.Add(4 * time.Minute), "instance-event-far": now.Add(26 * time.Hour)}))
	s.until(t, "the pod leaves", said, func() bool { return len(s.here) == 1 && s.closed && s.notes[eventNote] == "instance-event-near" })
	s.set(scheduledPath, "[]")
	s.until(t, "the node is open", said, func() bool { return !s.closed && s.notes[eventNote] == "" })
	for _, want := range []string{"EC2 has scheduled system-reboot of this instance in ", "default/web: evicted", "the node worker-0 gets pods again: instance-event-near is over"} {
		s.until(t, "it says "+want, said, func() bool { return strings.Contains(said(), want) })
	}
	s.set(scheduledPath, scheduled("active", map[string]time.Time{"instance-event-late": boot.Add(5 * time.Second)}))
	s.until(t, "the node is closed", said, func() bool { return s.closed && s.notes[eventNote] == "instance-event-late" })
	s.pass(t, 48*time.Hour)
	s.looksAgain(t, said)
	stop := strings.ReplaceAll(scheduled("active", map[string]time.Time{"instance-event-stop": boot.Add(7 * time.Second)}), "system-reboot", "instance-stop")
	late := scheduled("active", map[string]time.Time{"instance-event-late": boot.Add(5 * time.Second)})
	s.set(scheduledPath, strings.TrimSuffix(late, "]")+","+strings.TrimPrefix(stop, "["))
	s.until(t, "the mark is that of the next event", said, func() bool { return s.notes[eventNote] == "instance-event-stop" })
	s.looksAgain(t, said)
	s.mu.Lock()
	if slices.Contains(s.asked, "delete guarded") {
		t.Errorf("the guarded pod is deleted; asked %q", s.asked)
	}
	s.mu.Unlock()
	s.pass(t, 48*time.Hour+3*time.Minute)
	s.until(t, "the guarded pod is deleted", said, func() bool { return slices.Contains(s.asked, "delete guarded") })
}

// looksAgain waits until the script has looked for events several times.
func (s *eventServers) looksAgain(t *testing.T, said func() string) {
	t.Helper()
	s.mu.Lock()
	looks := s.looks
	s.mu.Unlock()
	s.until(t, "it looks again", said, func() bool { return s.looks > looks+9 })
}

// TestRebalanceRecommendation: budgets hold for as long as it takes. A node that a person has opened stays open, and the same
// person may cordon it again, until an interruption. A script that starts on a node with a mark opens it once it
// knows that the event is over.
func TestRebalanceRecommendation(t *testing.T) {
	s := &eventServers{guarded: map[string]bool{"guarded": true}, here: map[string]any{"web": eventPod("web", replicaSet(), "Running"), "guarded": eventPod("guarded", replicaSet(), "Running")},
		closed: true, notes: map[string]string{eventNote: "instance-event-near"}, says: map[string]string{actionPath: "no JSON"}}
	said := s.start(t)
	s.looksAgain(t, said)
	s.mu.Lock()
	if !s.closed || len(s.changes) > 0 {
		t.Errorf("before it knows: closed %v, changes %q", s.closed, s.changes)
	}
	s.mu.Unlock()
	s.set(actionPath, "")
	s.until(t, "the node is open", said, func() bool { return !s.closed && s.notes[eventNote] == "" })
	s.set(rebalancePath, `{"noticeTime":"2026-10-27T08:22:00Z"}`)
	s.until(t, "the web pod leaves", said, func() bool {
		return slices.Contains(s.asked, "evict web") && s.notes[eventNote] == "rebalance-recommendation"
	})
	s.pass(t, 48*time.Hour)
	s.until(t, "the guarded pod stays in several rounds", said, func() bool { return strings.Count(strings.Join(s.asked, ","), "evict guarded") > 3 })
	s.mu.Lock()
	s.closed = false // by a person
	s.mu.Unlock()
	s.until(t, "it notes that a person has opened the node", said, func() bool { return s.notes[declinedNote] == "rebalance-recommendation" })
	s.set(scheduledPath, scheduled("active", map[string]time.Time{"instance-event-near": time.Now().Add(48*time.Hour + 4*time.Minute)}))
	s.until(t, "the node is closed for another event", said, func() bool { return s.closed && s.notes[eventNote] == "instance-event-near" })
	s.set(scheduledPath, "[]")
	s.until(t, "the node is open as before", said, func() bool { return !s.closed && s.notes[eventNote] == "" })
	s.mu.Lock()
	s.closed = true // by a person, for other work
	asked := len(s.asked)
	s.mu.Unlock()
	s.looksAgain(t, said)
	s.set(rebalancePath, "")
	s.pass(t, 72*time.Hour)
	s.looksAgain(t, said)
	s.mu.Lock()
	if !s.closed || len(s.asked) > asked+1 || slices.Contains(s.asked, "delete guarded") || s.notes[eventNote] != "" {
		t.Errorf("the person's node: closed %v, asked %q, changes %q", s.closed, s.asked, s.changes)
	}
	s.closed = false
	s.mu.Unlock()
	s.pass(t, 0)
	s.set(actionPath, interruption(time.Now().Add(10*time.Minute)))
	s.until(t, "the node is closed", said, func() bool { return s.closed && s.notes[eventNote] == "spot-interruption" })
}

// TestEventOfNodeInRoll: a node that the provider has cordoned gets the mark as well. Without an event the script takes its mark
// away and leaves the node to the provider.
func TestEventOfNodeInRoll(t *testing.T) {
	s := &eventServers{closed: true, notes: map[string]string{"k8s-from-scratch/cordoned": "true"}, says: map[string]string{actionPath: interruption(time.Now().Add(10 * time.Minute))}}
	said := s.start(t)
	s.until(t, "the node has the mark", said, func() bool { return s.notes[eventNote] == "spot-interruption" })
	s.set(actionPath, "")
	s.until(t, "the mark is gone", said, func() bool { return s.notes[eventNote] == "" })
	s.looksAgain(t, said)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		t.Errorf("the provider's node was opened: %s", s.changes)
	}
}
