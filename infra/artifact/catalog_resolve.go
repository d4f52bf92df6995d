package artifact

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

const (
	maxChecksumFile = 1 << 20
	parallelFetches = 8
	fetchAttempts   = 4
	firstPause      = 200 * time.Millisecond // doubled after every failed attempt
)

// Resolve sets the missing SHA-256 of artifacts, in place, from the checksums published beside
// them, upstream or on the mirror. It fetches each checksum file once and retries temporary
// failures a few times. It does not ask a mirror with http://: whoever can change a file in transit
// can change its checksum, too.
func (c *Catalog) Resolve(ctx context.Context, artifacts []Artifact) error {
	if err := c.Resolvable(artifacts); err != nil {
		return err
	}
	byFile := map[string][]*Artifact{}
	for i := range artifacts {
		if a := &artifacts[i]; a.SHA256 == "" {
			byFile[a.Checksums] = append(byFile[a.Checksums], a)
		}
	}
	if len(byFile) > 0 && c.client == nil {
		return errors.New("resolve checksums: the catalog has no HTTP client")
	}
	g, ctx := parallel.WithContext(ctx)
	g.SetLimit(parallelFetches)
	for file, wanted := range byFile {
		g.Go(func() error {
			body, err := c.fetch(ctx, file)
			if err != nil {
				return fmt.Errorf("checksum of %s %s: %w", wanted[0].Name, wanted[0].Version, err)
			}
			for _, a := range wanted {
				if a.SHA256 = publishedDigest(body, path.Base(a.Path)); a.SHA256 == "" {
					return fmt.Errorf("%s %s: %w: %s does not list %s", a.Name, a.Version, ErrUnknownChecksum, file, path.Base(a.Path))
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// Resolvable returns an error for artifacts without a SHA-256 that Resolve could not find. It does
// no I/O.
func (c *Catalog) Resolvable(artifacts []Artifact) error {
	var errs []error
	for _, a := range artifacts {
		if a.SHA256 != "" {
			continue
		}
		if a.Checksums == "" {
			errs = append(errs, fmt.Errorf("%s %s: %w, and it is not published", a.Name, a.Version, ErrUnknownChecksum))
		} else if u, err := url.Parse(a.Checksums); err != nil || u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("%s %s: %w, and one fetched over http:// would prove nothing: add %s to the checksums, or use an https:// mirror",
				a.Name, a.Version, ErrUnknownChecksum, a.Path))
		}
	}
	return errors.Join(errs...)
}

// publishedDigest returns a file's digest from upstream's checksums: either lines of sha256sum(1),
// or only the digest.
func publishedDigest(body []byte, name string) string {
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		sum, file, ok := cutChecksum(line)
		if ok && (file == "" || path.Base(file) == name) {
			return sum
		}
	}
	return ""
}

func (c *Catalog) fetch(ctx context.Context, file string) ([]byte, error) {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		body, again, err := c.get(ctx, file)
		if err == nil || !again || attempt == fetchAttempts {
			return body, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(err, ctx.Err())
		case <-timer.C:
		}
		pause *= 2
	}
}

// get fetches a file; again says whether another attempt may help.
func (c *Catalog) get(ctx context.Context, file string) (body []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, file, nil)
	if err != nil {
		return nil, false, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, ctx.Err() == nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if last := resp.Request.URL; last.Scheme != "https" {
		return nil, false, fmt.Errorf("GET %s: it redirects to %s, which is not encrypted", file, last)
	}
	if resp.StatusCode != http.StatusOK {
		again = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		return nil, again, fmt.Errorf("GET %s: %s", file, resp.Status)
	}
	body, err = foreign.ReadAll(resp.Body, maxChecksumFile, resp.Request.URL.Host)
	if err != nil {
		var much *foreign.TooMuchError
		return nil, ctx.Err() == nil && !errors.As(err, &much), fmt.Errorf("GET %s: %w", file, err)
	}
	return body, false, nil
}
