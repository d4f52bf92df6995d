package recorder

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// server is as much of an API server as ConfigMaps need.
type server struct {
	mu      sync.Mutex
	objects map[string]corev1.ConfigMap
	away    bool
	asked   map[string]int // method -> requests
	version int            // requests with a resourceVersion
	from    map[string]bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.Method]++
	s.from[r.RemoteAddr] = true
	if r.URL.Query().Has("resourceVersion") {
		s.version++
	}
	if s.away {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var m corev1.ConfigMap
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if m.ResourceVersion != "" {
			s.version++
		}
		s.objects[m.Name] = m
	} else {
		m = s.objects[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
	}
	m.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(m)
}

// TestConfigMaps checks that reads and writes go to the API as they must: without resourceVersion, on
// several connections, and never twice.
func TestConfigMaps(t *testing.T) {
	s := &server{objects: map[string]corev1.ConfigMap{}, asked: map[string]int{}, from: map[string]bool{}}
	web := httptest.NewServer(s)
	defer web.Close()
	m, err := NewConfigMaps(t.Context(), &rest.Config{Host: web.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "x", 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		if err := m.Write(t.Context(), 1, i+1); err != nil {
			t.Fatal(err)
		}
		if value, err := m.Read(t.Context(), 1); err != nil || value != i+1 {
			t.Fatalf("%d, %v", value, err)
		}
	}
	if value, err := m.Read(t.Context(), 0); err != nil || value != 0 {
		t.Errorf("%d, %v", value, err)
	}
	if s.version > 0 || len(s.from) != connections || s.asked[http.MethodPost] != 2 {
		t.Errorf("%d requests had a resourceVersion, %d connections, %v", s.version, len(s.from), s.asked)
	}
	s.away, s.asked = true, map[string]int{}
	if err := m.Write(t.Context(), 1, 99); err == nil {
		t.Error("a write was not made, and nobody says so")
	}
	if _, err := m.Read(t.Context(), 1); err == nil {
		t.Error("a read was not answered, and nobody says so")
	}
	if s.asked[http.MethodPut] != 1 || s.asked[http.MethodGet] != 1 {
		t.Errorf("asked %v", s.asked)
	}
	web.Close()
	if err := m.Write(t.Context(), 1, 100); err == nil || strings.Contains(err.Error(), web.URL+"/api") {
		t.Errorf("without a server: %v", err)
	}
}
