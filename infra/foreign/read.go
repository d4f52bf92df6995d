package foreign

import (
	"fmt"
	"io"
)

// TooMuchError says that a sender sent more than the limit.
type TooMuchError struct {
	From  string // who sent it, for people: "machine worker-0", "https://..."
	Limit int64  // in bytes
}

func (e *TooMuchError) Error() string {
	return fmt.Sprintf("%s sent more than %s, and the rest is not read", e.From, size(e.Limit))
}

// size writes a number of bytes in its largest whole unit.
func size(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprintf("%d %s", n/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// ReadAll is [io.ReadAll] of at most limit bytes. If there are more, the error is a [*TooMuchError].
func ReadAll(r io.Reader, limit int64, from string) ([]byte, error) {
	return io.ReadAll(Reader(r, limit, from))
}

// Reader returns a reader of at most limit bytes of r. If there are more, its error is a
// [*TooMuchError], unlike that of an [io.LimitedReader], which looks like the end.
func Reader(r io.Reader, limit int64, from string) io.Reader {
	return &reader{r: r, left: limit, err: &TooMuchError{From: from, Limit: limit}}
}

// Body is [Reader] for the body of an HTTP response.
func Body(body io.ReadCloser, limit int64, from string) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{Reader(body, limit, from), body}
}

type reader struct {
	r    io.Reader
	left int64
	err  error
}

func (l *reader) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, l.err
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1] // one more tells whether there is more
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n - 1, l.err
	}
	return n, err
}
