package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2"
)

// Daemon tells about the process behind a lab.
type Daemon struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// mirrorFault is a fault of the artifact mirror on the control endpoint.
type mirrorFault struct {
	Kind  string         `json:"kind"` // "mirror"
	Path  string         `json:"path"` // such as /dl.k8s.io/release/v1.36.1/bin/linux/amd64/kubelet
	Fault artifact.Fault `json:"fault"`
}

const kindMirror = "mirror"

// newControl adds to the cloud's own endpoint what concerns the rest of the
// lab: faults of the mirror, its request counts, the daemon.
func newControl(cloud *ec2.Cloud, mirror *artifact.Mirror, self Daemon) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", cloud)
	mux.HandleFunc("GET /_lab/daemon", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, self) })
	mux.HandleFunc("GET /_lab/mirror", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, mirror.Counts()) })
	mux.HandleFunc("POST /_lab/faults", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		var f mirrorFault
		if err != nil || json.Unmarshal(body, &f) != nil || f.Kind != kindMirror {
			r.Body = io.NopCloser(bytes.NewReader(body))
			cloud.ServeHTTP(w, r)
			return
		}
		if f.Path == "" {
			err = fmt.Errorf("a mirror fault needs the path of a file, such as /dl.k8s.io/release/%s/bin/linux/amd64/kubelet", artifact.KubernetesVersion)
		} else {
			err = mirror.SetFault(f.Path, f.Fault)
		}
		if err != nil {
			reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		reply(w, http.StatusCreated, f)
	})
	mux.HandleFunc("GET /_lab/faults", func(w http.ResponseWriter, _ *http.Request) {
		all := []any{}
		for _, f := range cloud.Faults() {
			all = append(all, f)
		}
		for path, f := range mirror.Faults() {
			all = append(all, mirrorFault{kindMirror, path, f})
		}
		reply(w, http.StatusOK, all)
	})
	mux.HandleFunc("DELETE /_lab/faults", func(w http.ResponseWriter, r *http.Request) {
		for path := range mirror.Faults() {
			_ = mirror.SetFault(path, artifact.FaultNone) // fails on unknown faults only
		}
		cloud.ServeHTTP(w, r)
	})
	return mux
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if this fails
}
