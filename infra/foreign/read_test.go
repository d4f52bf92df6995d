package foreign

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadAll(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 9, 10} {
		for _, r := range []io.Reader{strings.NewReader(strings.Repeat("x", n)), iotest.OneByteReader(strings.NewReader(strings.Repeat("x", n))), iotest.DataErrReader(strings.NewReader(strings.Repeat("x", n)))} {
			if got, err := ReadAll(r, 10, "machine a"); err != nil || len(got) != n {
				t.Errorf("%d bytes: %d, %v", n, len(got), err)
			}
		}
	}
	for _, r := range []io.Reader{strings.NewReader(strings.Repeat("x", 11)), iotest.OneByteReader(endless{}), endless{}} {
		got, err := ReadAll(r, 10, "machine a")
		var much *TooMuchError
		if !errors.As(err, &much) || !bytes.Equal(got, []byte("xxxxxxxxxx")) {
			t.Errorf("%q, %v", got, err)
		}
		if want := "machine a sent more than 10 bytes, and the rest is not read"; err == nil || err.Error() != want {
			t.Errorf("%v, wanted %s", err, want)
		}
	}
	if got := (&TooMuchError{From: "x", Limit: 64 << 20}).Error(); !strings.Contains(got, "64 MiB") {
		t.Error(got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
