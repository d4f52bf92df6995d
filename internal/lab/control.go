package lab

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/mirror"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// Daemon describes a lab's process.
type Daemon struct {
	PID     int       `json:"pid"`
	Keeper  int       `json:"keeper"` // the process that started it, see Keep
	Started time.Time `json:"started"`
}

// mirrorFault is a fault of the artifact mirror on the control endpoint.
type mirrorFault struct {
	Kind  string       `json:"kind"` // "mirror"
	Path  string       `json:"path"` // such as /dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet
	Fault mirror.Fault `json:"fault"`
}

// archiveFault is a fault of the package archive on the control endpoint.
type archiveFault struct {
	Kind string `json:"kind"` // "archive"
	outside.Fault
}

// lineFault is a slow line to the internet on the control endpoint.
type lineFault struct {
	Kind string `json:"kind"` // "line"
	outside.Speed
}

const (
	kindMirror  = "mirror"
	kindArchive = "archive"
	kindLine    = "line"
)

// Outside holds the requests that the servers in the lab's internet received.
type Outside struct {
	Web     []outside.Request `json:"web"`
	Archive []outside.Request `json:"archive"`
}

// newControl adds the rest of the lab to the account's control endpoint: faults of the mirror, of the
// package archive and of the line to the internet, the requests that the mirror, the archive and the web
// server received, and the daemon.
func newControl(account *cloud.Account, world *internet, self Daemon, publish func(release, variant string) (string, error)) http.Handler {
	files := world.files
	bare := files == nil
	if bare {
		files = mirror.New("") // serves nothing
	}
	mux := http.NewServeMux()
	mux.Handle("/", account)
	mux.HandleFunc("GET /_lab/daemon", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, self) })
	mux.HandleFunc("POST /_lab/images", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Release, Variant string }
		err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&in)
		if err == nil {
			in.Release, err = publish(in.Release, in.Variant)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		reply(w, http.StatusOK, map[string]string{"id": in.Release})
	})
	mux.HandleFunc("GET /_lab/mirror", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, files.Counts()) })
	mux.HandleFunc("GET /_lab/outside", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, Outside{world.webLog.Requests(), world.archiveLog.Requests()})
	})
	mux.HandleFunc("DELETE /_lab/outside", func(w http.ResponseWriter, _ *http.Request) {
		world.webLog.Reset()
		world.archiveLog.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_lab/faults", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			refuse(w, err)
			return
		}
		var f struct{ Kind string }
		_ = json.Unmarshal(body, &f) // the account says what is wrong with a body that is not JSON
		switch f.Kind {
		case kindMirror:
			addFault(w, body, mirrorFault{}, func(f mirrorFault) error {
				if bare {
					return errors.New("the lab is bare: it has no artifact mirror")
				}
				if f.Path == "" {
					return fmt.Errorf("a mirror fault needs the path of a file, such as /dl.k8s.io/release/%s/bin/linux/amd64/kubelet", release.KubernetesVersion)
				}
				return files.SetFault(f.Path, f.Fault)
			})
		case kindArchive:
			addFault(w, body, archiveFault{}, func(f archiveFault) error { return world.archive.AddFault(f.Fault) })
		case kindLine:
			addFault(w, body, lineFault{}, func(f lineFault) error { return world.line.SetSpeed(f.Speed) })
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			account.ServeHTTP(w, r)
		}
	})
	mux.HandleFunc("GET /_lab/faults", func(w http.ResponseWriter, _ *http.Request) {
		all := []any{}
		for _, f := range account.Faults() {
			all = append(all, f)
		}
		for path, f := range files.Faults() {
			all = append(all, mirrorFault{kindMirror, path, f})
		}
		for _, f := range world.archive.Faults() {
			all = append(all, archiveFault{kindArchive, f})
		}
		if s := world.line.Speed(); s != (outside.Speed{}) {
			all = append(all, lineFault{kindLine, s})
		}
		reply(w, http.StatusOK, all)
	})
	mux.HandleFunc("DELETE /_lab/faults", func(w http.ResponseWriter, r *http.Request) {
		for path := range files.Faults() {
			_ = files.SetFault(path, mirror.FaultNone) // fails only on unknown faults
		}
		world.archive.ClearFaults()
		world.line.Reset()
		account.ServeHTTP(w, r)
	})
	return mux
}

// withToken asks for a token in requests to the control endpoint. The port alone is no protection:
// other users of the host, and web pages in their browsers, can reach it.
func withToken(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get("Authorization")
		if strings.HasPrefix(r.URL.Path, cloud.ControlPrefix) && (token == "" || subtle.ConstantTimeCompare([]byte(given), []byte(bearer+token)) != 1) {
			w.Header().Set("WWW-Authenticate", strings.TrimSpace(bearer))
			reply(w, http.StatusUnauthorized, map[string]string{"error": "this endpoint wants the lab's token, which is in its " + settingsFile})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer comes before the token in a request (RFC 6750).
const bearer = "Bearer "

// addFault reads a fault of type T from a request's body and adds it.
func addFault[T any](w http.ResponseWriter, body []byte, f T, add func(T) error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		refuse(w, fmt.Errorf("reading the fault: %w", err))
		return
	}
	if err := add(f); err != nil {
		refuse(w, err)
		return
	}
	reply(w, http.StatusCreated, f)
}

func refuse(w http.ResponseWriter, err error) {
	reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if this fails
}
