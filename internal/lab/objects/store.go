// Package objects runs versitygw, the program that keeps the buckets and objects of the local EC2's
// S3 in files and speaks S3's protocol.
//
// The program checks signatures and asks the account for keys and permissions (see Store.Ask). This
// package knows neither accounts nor what requests mean.
package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// ErrNotReady says that the program cannot serve yet, or cannot be started.
var ErrNotReady = errors.New("the object store is not ready")

// startPatience bounds the start of the program. It answers within a second.
const startPatience = 30 * time.Second

// Config is a Store's configuration.
type Config struct {
	// Program returns the file of versitygw, or an ErrNotReady if it has to be made first.
	Program func() (string, error)
	Dir     string // where buckets are kept; made at the first start
	Region  string
	Output  io.Writer // gets what the program prints; nil discards it
	Log     *slog.Logger
}

// Store is an object store. The program starts with the first request, and again after it ended.
// Its methods are safe for concurrent use.
type Store struct {
	cfg       Config
	key       aws.Credentials // with which the program signs its questions
	gateway   string          // abstract socket of the program
	authority string          // abstract socket where it asks
	proxy     *httputil.ReverseProxy

	mu     sync.Mutex
	asked  *http.Server
	ended  chan struct{} // closed when the running program has ended; nil if none was started
	cancel context.CancelFunc
	closed bool
}

// New returns a store that has not started.
func New(cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	name := "@k8s-lab-s3-" + random(12)
	s := &Store{
		cfg: cfg, gateway: name, authority: name + "-iam",
		key: aws.Credentials{AccessKeyID: "AKIA" + random(8), SecretAccessKey: random(24)},
	}
	s.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "s3"
			r.Out.Host = r.In.Host // the header is signed
			r.Out.Header["X-Forwarded-For"] = nil
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", s.gateway)
			},
			DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
		},
		FlushInterval:  -1,
		ModifyResponse: deleted,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			cfg.Log.Error("the object store did not answer", "error", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return s
}

// deleted makes the deletion of an object that does not exist succeed with 204, as in S3. The
// program does so itself, unless another request deletes the object at the same time.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObject.html
func deleted(r *http.Response) error {
	if r.Request.Method != http.MethodDelete || r.StatusCode != http.StatusNotFound {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16)) // of an error
	if err != nil {
		return fmt.Errorf("answer of the object store: %w", err)
	}
	_ = r.Body.Close() // it has been read
	r.Body = io.NopCloser(bytes.NewReader(body))
	var said struct{ Code string }
	if xml.Unmarshal(body, &said) == nil && said.Code == "NoSuchKey" {
		r.StatusCode, r.Status, r.Body = http.StatusNoContent, "204 No Content", http.NoBody
		r.ContentLength = 0
		r.Header.Del("Content-Length")
		r.Header.Del("Content-Type")
	}
	return nil
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Key is the key with which the program signs its questions. It has nothing to do with the account's
// keys.
func (s *Store) Key() aws.Credentials { return s.key }

// Ask serves the program's questions about keys and permissions. It has to be called once, before
// the first request.
func (s *Store) Ask(ctx context.Context, authority http.Handler) error {
	at, err := new(net.ListenConfig).Listen(ctx, "unix", s.authority)
	if err != nil {
		return fmt.Errorf("questions of the object store: %w", err)
	}
	server := &http.Server{Handler: authority, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.asked = server
	s.mu.Unlock()
	go func() { _ = server.Serve(at) }() // ends with Close
	return nil
}

// Ready starts the program unless it runs. The error is an ErrNotReady.
func (s *Store) Ready(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: it is closed", ErrNotReady)
	}
	if s.ended != nil {
		select {
		case <-s.ended:
			s.cfg.Log.Error("the object store ended and is started again")
		default:
			return nil
		}
	}
	program, err := s.cfg.Program()
	if err != nil {
		return err
	}
	if err := s.start(ctx, program); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}

// start runs the program and waits until it accepts connections.
func (s *Store) start(ctx context.Context, program string) error {
	data, sidecar := filepath.Join(s.cfg.Dir, "buckets"), filepath.Join(s.cfg.Dir, "attributes")
	for _, dir := range []string{data, sidecar} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("directory of the object store: %w", err)
		}
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the request
	cmd := exec.CommandContext(running, program,                      //nolint:gosec // the lab built it
		"--port", s.gateway, "--region", s.cfg.Region, "--quiet", "--disable-acl",
		"--iam-standalone-endpoint", s.authority,
		"posix", "--sidecar", sidecar, data)
	cmd.Dir = s.cfg.Dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "ROOT_ACCESS_KEY_ID=" + s.key.AccessKeyID, "ROOT_SECRET_ACCESS_KEY=" + s.key.SecretAccessKey}
	cmd.Stdout, cmd.Stderr = s.cfg.Output, s.cfg.Output
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the program is to end with this process, not with a thread of it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			err = cmd.Wait()
		}
		s.cfg.Log.Info("the object store ended", "error", err)
		close(ended)
	}()
	if err := <-started; err != nil {
		cancel()
		return fmt.Errorf("starting the object store: %w", err)
	}
	deadline := time.Now().Add(startPatience)
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", s.gateway)
		if err == nil {
			_ = conn.Close()
			s.ended, s.cancel = ended, cancel
			return nil
		}
		select {
		case <-ended:
			err = errors.New("it ended at once; its log says why")
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
			err = fmt.Errorf("no answer after %s: %w", startPatience, err)
		}
		cancel()
		return fmt.Errorf("starting the object store: %w", err)
	}
}

// ServeHTTP passes a request on to the program. It must be ready.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.proxy.ServeHTTP(w, r) }

// Buckets returns the names of the buckets, sorted.
func (s *Store) Buckets() []string {
	entries, _ := os.ReadDir(filepath.Join(s.cfg.Dir, "buckets")) // there is none before the first request
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	return names
}

// Policy returns the policy of a bucket, nil if it has none.
func (s *Store) Policy(bucket string) []byte {
	if !slices.Contains(s.Buckets(), bucket) {
		return nil
	}
	policy, _ := os.ReadFile(filepath.Join(s.cfg.Dir, "attributes", bucket, "meta", "policy")) // the program writes it as a whole
	return policy
}

// Close ends the program.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.cancel != nil {
		s.cancel()
		<-s.ended
	}
	if s.asked != nil {
		_ = s.asked.Close() // its clients are gone
	}
}

var _ http.Handler = (*Store)(nil)
