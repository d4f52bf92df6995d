package release

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// connectTimeout bounds how long an unreachable upstream can delay a build.
const connectTimeout = 3 * time.Second

// errUnavailable says that a file cannot be had from upstream now. A file with a wrong checksum is
// another error.
var errUnavailable = errors.New("not available from upstream")

// upstream downloads releases. It does not try a host again that has failed once.
type upstream struct {
	client   *http.Client
	progress *progress.Reporter

	mu   sync.Mutex
	down map[string]error
}

func newUpstream(client *http.Client, p *progress.Reporter) *upstream {
	if client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
		t.TLSHandshakeTimeout = connectTimeout
		t.ResponseHeaderTimeout = 2 * connectTimeout
		client = &http.Client{Transport: t}
	}
	if client.Transport == nil {
		client = &http.Client{Transport: http.DefaultTransport, Timeout: client.Timeout}
	}
	return &upstream{client: client, progress: p, down: make(map[string]error)}
}

// fetch downloads the files of p to dir and checks each against upstream's checksum.
func (u *upstream) fetch(ctx context.Context, p product, dir string) error {
	for _, file := range p.files() {
		if err := u.fetchFile(ctx, p, file, filepath.Join(dir, path.Base(file))); err != nil {
			return fmt.Errorf("fetching https://%s: %w", file, err)
		}
	}
	return nil
}

func (u *upstream) fetchFile(ctx context.Context, p product, file, to string) (err error) {
	body, err := u.get(ctx, p.sumsFile(file))
	if err != nil {
		return err
	}
	want, err := findChecksum(body, path.Base(file))
	_ = body.Close()
	if err != nil {
		return fmt.Errorf("checksum in https://%s: %w", p.sumsFile(file), err)
	}
	if body, err = u.get(ctx, file); err != nil {
		return err
	}
	defer body.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	var received counter
	stop := u.progress.Job("fetching https://"+file, func() string {
		return fmt.Sprintf("%d MiB", received.Load()>>20)
	})
	defer func() { stop(err) }()
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash, &received), body)
	if closeErr := out.Close(); err != nil || closeErr != nil {
		return fmt.Errorf("%w: %w", errUnavailable, errors.Join(err, closeErr))
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("sha256 is %s, upstream publishes %s", got, want)
	}
	return nil
}

// get opens https://file.
func (u *upstream) get(ctx context.Context, file string) (io.ReadCloser, error) {
	host, _, _ := strings.Cut(file, "/")
	u.mu.Lock()
	downErr := u.down[host]
	u.mu.Unlock()
	if downErr != nil {
		return nil, downErr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+file, nil)
	if err != nil {
		return nil, err
	}
	resp, err := u.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		return nil, u.markDown(host, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.Body, nil
	case http.StatusNotFound:
		err = fmt.Errorf("%w: %s", errUnavailable, resp.Status)
	default:
		err = u.markDown(host, errors.New(resp.Status))
	}
	_ = resp.Body.Close()
	return nil, err
}

func (u *upstream) isDown(host string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.down[host] != nil
}

func (u *upstream) markDown(host string, cause error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down[host] == nil {
		u.down[host] = fmt.Errorf("%w: %s cannot be reached: %w", errUnavailable, host, cause)
		u.progress.Line(fmt.Sprintf("%s cannot be reached (%v): building from source", host, cause))
	}
	return u.down[host]
}

// findChecksum reads the SHA-256 of name from a checksum file, which holds one bare checksum or
// lines of sha256sum(1).
func findChecksum(r io.Reader, name string) (string, error) {
	lines := bufio.NewScanner(io.LimitReader(r, 1<<20))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || len(fields) > 2 {
			continue
		}
		sum, err := hex.DecodeString(fields[0])
		if err != nil || len(sum) != sha256.Size {
			continue
		}
		if len(fields) == 1 || path.Base(strings.TrimPrefix(fields[1], "*")) == name {
			return hex.EncodeToString(sum), nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%w: no sha256 for %s", errUnavailable, name)
}

// counter counts the bytes written to it.
type counter struct{ atomic.Int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}
