package machine

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
)

// part is one part of user data, in the form in which cloud-init takes several.
// https://docs.cloud-init.io/en/latest/explanation/format.html#mime-multi-part-archive
type part struct{ name, contentType, text string }

// The names of the parts.
const (
	furtherPart = "user-data"
	ownPart     = "k8s-from-scratch"
	bootPart    = "k8s-from-scratch-boot"
)

// message returns parts as one MIME message.
func message(parts []part) []byte {
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(p.text)
	}
	boundary := "k8s-from-scratch"
	for strings.Contains(all.String(), "--"+boundary) { // ends, since the text does
		boundary += "-"
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=%q\n", boundary)
	for _, p := range parts {
		encoding, text := "7bit", p.text
		if !plain(text) {
			encoding, text = "base64", base64.StdEncoding.EncodeToString([]byte(text))
		}
		fmt.Fprintf(&out, "\n--%s\nContent-Type: %s; charset=\"utf-8\"\nContent-Transfer-Encoding: %s\nContent-Disposition: attachment; filename=%q\n\n%s",
			boundary, p.contentType, encoding, p.name, text)
	}
	fmt.Fprintf(&out, "\n--%s--\n", boundary)
	return out.Bytes()
}

// plain reports whether Python's mail parser, which cloud-init uses, reads a text as it is: others than
// ASCII it takes for Latin-1, and it ends lines where Unix does not.
func plain(text string) bool {
	for _, b := range []byte(text) {
		if (b < ' ' && b != '\n' && b != '\t') || b > '~' {
			return false
		}
	}
	return true
}

// parseMessage returns the parts of a MIME message.
func parseMessage(raw []byte) ([]part, error) {
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the message: %w", err)
	}
	_, parameters, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("read the message: %w", err)
	}
	var out []part
	for r := multipart.NewReader(m.Body, parameters["boundary"]); ; {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a part: %w", err)
		}
		text, err := io.ReadAll(p)
		if err == nil && strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
			text, err = base64.StdEncoding.DecodeString(string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("read part %s: %w", p.FileName(), err)
		}
		contentType, _, _ := strings.Cut(p.Header.Get("Content-Type"), ";")
		out = append(out, part{p.FileName(), contentType, string(text)})
	}
}
