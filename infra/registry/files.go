package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// File is one file below the directory of containerd's host files.
type File struct {
	Path    string // below the directory: "docker.io/hosts.toml"
	Content []byte // with "(hidden)" in place of passwords
	Text    []byte // what may be shown: Content with what the caller hides of URLs
	Secret  bool   // it has passwords: what must be written is Filled
	render  func(login func(Mirror) (string, error)) ([]byte, error)
}

// hostsFile is the file in the directory of each registry.
const hostsFile = "hosts.toml"

// Patterns returns the patterns of the files, below their directory.
func Patterns() []string { return []string{"*/" + hostsFile, "*/*.pem"} }

// Files returns the files of all registries, authorities before the files that name them. shown returns what may be shown of a
// mirror's URL. The registries must have passed [Registries.Check].
func (r Registries) Files(shown func(*url.URL) string) ([]File, error) {
	var out []File
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if err := checkName(name); err != nil {
			return nil, err
		}
		dir, server := name, "https://"+name
		switch name {
		case Others:
			dir, server = "_default", ""
		case "docker.io":
			server = "https://registry-1.docker.io"
		}
		hosts := File{Path: dir + "/" + hostsFile}
		known := map[string]bool{}
		for i, m := range r[name] {
			if _, err := parse(m.URL); err != nil {
				return nil, fmt.Errorf("mirror %d of registry %s: %w", i+1, name, err)
			}
			hosts.Secret = hosts.Secret || m.User != ""
			if p := m.authority(dir); p != "" && !known[p] {
				known[p] = true
				out = append(out, File{Path: p, Content: []byte(m.CA), Text: []byte(m.CA)})
			}
		}
		hosts.render = func(login func(Mirror) (string, error)) ([]byte, error) {
			return render(dir, server, r[name], (*url.URL).String, login)
		}
		var err, err2 error
		hosts.Content, err = hosts.render(hiddenLogin)
		hosts.Text, err2 = render(dir, server, r[name], shown, hiddenLogin)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		out = append(out, hosts)
	}
	return out, nil
}

// authority returns the path of the file with the mirror's authority, named by its content so that it and the file that
// names it can change one after the other. It is empty without one.
func (m Mirror) authority(dir string) string {
	if m.CA == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(m.CA))
	return dir + "/ca-" + hex.EncodeToString(sum[:6]) + ".pem"
}

// Filled returns the content of a secret file with its passwords.
func (f File) Filled() ([]byte, error) {
	return f.render(func(m Mirror) (string, error) {
		if m.Password == "" {
			return "", fmt.Errorf("the password of user %s at %s is not at hand", m.User, m.URL)
		}
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(m.User+":"+m.Password)), nil
	})
}

// hiddenLogin stands for a mirror's login.
func hiddenLogin(m Mirror) (string, error) {
	return fmt.Sprintf("Basic (hidden: user %s, password version %d)", m.User, m.PasswordVersion), nil
}

// entry is one mirror in a hosts.toml.
type entry struct {
	Capabilities []string          `toml:"capabilities"`
	CA           string            `toml:"ca,omitempty"`
	OverridePath bool              `toml:"override_path,omitempty"`
	Header       map[string]string `toml:"header,omitempty"`
}

// hosts is a hosts.toml as it is read.
type hosts struct {
	Host map[string]entry `toml:"host"`
}

// render returns the hosts.toml of a registry. containerd asks the mirrors in the order of their tables, so each is
// marshalled by itself.
func render(dir, server string, mirrors []Mirror, at func(*url.URL) string, login func(Mirror) (string, error)) ([]byte, error) {
	var b strings.Builder
	if server != "" {
		fmt.Fprintf(&b, "server = '%s'\n", server)
	}
	for _, m := range mirrors {
		u, err := parse(m.URL)
		if err != nil {
			return nil, err
		}
		e := entry{Capabilities: []string{"pull", "resolve"}, OverridePath: strings.Trim(u.Path, "/") != ""}
		if p := m.authority(dir); p != "" {
			e.CA = path.Base(p)
		}
		if m.User != "" {
			text, err := login(m)
			if err != nil {
				return nil, err
			}
			e.Header = map[string]string{"Authorization": text}
		}
		table, err := toml.Marshal(map[string]map[string]entry{"host": {trim(at(u)): e}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hostsFile, err)
		}
		// The table "host" is not written, since it may be there only once: its mirrors imply it.
		b.WriteString("\n" + strings.TrimPrefix(string(table), "[host]\n"))
	}
	return []byte(b.String()), nil
}

// Read is the inverse of [Registries.Files], without passwords and their versions. files are contents by path below the directory of
// host files.
func Read(files map[string][]byte) (Registries, error) {
	var out Registries
	for _, p := range slices.Sorted(maps.Keys(files)) {
		dir, file := path.Split(p)
		if file != hostsFile || strings.Count(p, "/") != 1 {
			continue
		}
		var found hosts
		if err := toml.Unmarshal(files[p], &found); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		name := path.Clean(dir)
		if name == "_default" {
			name = Others
		}
		for _, at := range order(files[p]) {
			e := found.Host[at]
			m := Mirror{URL: at, CA: string(files[dir+e.CA])}
			if login, ok := strings.CutPrefix(e.Header["Authorization"], "Basic "); ok {
				plain, _ := base64.StdEncoding.DecodeString(login)
				m.User, _, _ = strings.Cut(string(plain), ":")
			}
			if out == nil {
				out = Registries{}
			}
			out[name] = append(out[name], m)
		}
	}
	return out, nil
}

// order returns the mirrors of a hosts.toml in the order of their tables, as containerd finds it
// (https://github.com/containerd/containerd/blob/v2.3.7/core/remotes/docker/config/hosts.go).
func order(content []byte) []string {
	var out []string
	var p unstable.Parser
	p.Reset(content)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table {
			continue
		}
		var key []string
		for it := e.Key(); it.Next(); {
			key = append(key, string(it.Node().Data))
		}
		if len(key) >= 2 && key[0] == "host" && !slices.Contains(out, key[1]) {
			out = append(out, key[1])
		}
	}
	return out
}
