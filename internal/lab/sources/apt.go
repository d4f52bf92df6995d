package sources

import (
	"bufio"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// aptMirror returns the URL of the Debian archive that the host's apt uses, from the sources in dir
// (/etc/apt); empty if there is none.
func aptMirror(dir string) string {
	files := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		// It fails on a malformed pattern only.
		found, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", pattern))
		files = append(files, found...)
	}
	for _, name := range files {
		if uri := debianURI(name); uri != "" {
			return uri
		}
	}
	return ""
}

// debianURI returns the first URI in a file that ends in /debian, as the URIs of all mirrors of
// Debian's archive do. The file has one of the two formats of sources.list(5).
func debianURI(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || !slices.Contains([]string{"deb", "URIs:"}, fields[0]) {
			continue
		}
		for _, field := range fields[1:] {
			u, err := url.Parse(field)
			if err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/debian") {
				return strings.TrimSuffix(field, "/")
			}
		}
	}
	return ""
}
