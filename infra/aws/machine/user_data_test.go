package machine

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func specWith(text, boot string) Spec {
	return Spec{Name: "worker-0", User: "admin", AuthorizedKeys: []string{"ssh-ed25519 AAAA me"}, UserData: text, BootCommand: boot}
}

// TestUserDataThereAndBack: what a machine is launched with is read back as it was, whatever the
// text is, and cloud-init gets each part with its type, the provider's configuration after the
// user's.
func TestUserDataThereAndBack(t *testing.T) {
	keys, err := newLaunchKeys(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "#!/bin/sh\necho hello\n", "#!/bin/sh\necho no end", "#cloud-config\nbootcmd:\n- [touch, /run/a]\n\n\n", "#cloud-boothook\n#!/bin/sh\n",
		"#!/bin/sh\necho \u00e9t\u00e9\n", "#!/bin/sh\r\necho\r\n", "#!/bin/sh\n--k8s-from-scratch\n--k8s-from-scratch--\n", "#include https://example.com/a\n",
	} {
		for _, boot := range []string{"", "printf '%s' x"} {
			data, err := userData(specWith(text, boot), keys)
			if err != nil {
				t.Fatal(err)
			}
			found, err := parseUserData(data)
			if err != nil || !slices.Equal(found.hostKeys, keys.authorized()) || found.userData != text {
				t.Errorf("%q: read back as %q, keys %q: %v", text, found.userData, found.hostKeys, err)
			}
			if text == "" {
				if !strings.HasPrefix(string(data), "#cloud-config\n") || strings.Contains(string(data), "bootcmd") != (boot != "") {
					t.Errorf("without further user data:\n%s", data)
				}
				continue
			}
			parts, err := parseMessage(data)
			if err != nil {
				t.Fatal(err)
			}
			if parts[0].contentType != userDataType(text) || parts[1].contentType != "text/cloud-config" || strings.Contains(parts[1].text, "bootcmd") {
				t.Errorf("%q: %v", text, parts)
			}
			if boot == "" {
				if len(parts) != 2 {
					t.Errorf("%d parts", len(parts))
				}
			} else if last := parts[len(parts)-1]; len(parts) != 3 || last.contentType != "text/cloud-boothook" ||
				!strings.HasSuffix(last.text, `cloud-init-per instance k8s-from-scratch sh -c 'printf '\''%s'\'' x'`+"\n") {
				t.Errorf("%q: boot command as %v", text, parts)
			}
		}
	}
}

// TestCheckUserData: data that cloud-init would not take are refused with the reason.
func TestCheckUserData(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "#!/bin/sh\n": "", "#cloud-config\npackages: [jq]\n": "", "#cloud-config": "", "#include-once\nhttps://example.com/\n": "",
		"#cloud-config-archive\n- users\n": "", "## template: jinja\n#cloud-config\n{% if x %}\n": "",
		"echo hello\n":     "has to begin with one of #!, #cloud-boothook",
		"\n#!/bin/sh\n":    "has to begin with",
		"IyEvYmluL3NoCg==": "not in base64",
		"MIME-Version: 1.0\nContent-Type: a/b\n\n":   "give one part",
		"Content-Type: multipart/mixed; boundary=b":  "give one part",
		"#!" + strings.Repeat("x", MaxUserData-1):    "It has 16385 bytes",
		"#cloud-config\n- a\n":                       "not a YAML object",
		"#cloud-config\na: [\n":                      "not a YAML object",
		"#cloud-config\nusers: [default]\n":          "users in #cloud-config is set by the provider",
		"#cloud-config\nssh_keys: {}\nruncmd: [a]\n": "ssh_keys in #cloud-config",
		"#cloud-config\nhostname: other\n":           "hostname in #cloud-config",
	} {
		got := ""
		if err := CheckUserData(text).Err(); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func TestCloudConfig(t *testing.T) {
	spec := Spec{Name: "worker-0", User: "admin", AuthorizedKeys: []string{"ssh-ed25519 AAAA op"}}
	body, err := userData(spec, launchKeys{"ed25519": {authorized: "ssh-ed25519 BBBB", pem: "-----BEGIN\nxyz\n-----END\n"}, "ecdsa": {authorized: "ecdsa-sha2-nistp256 CCCC", pem: "-----BEGIN\nuvw\n-----END\n"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `#cloud-config
disable_root: true
hostname: worker-0
preserve_hostname: false
ssh_deletekeys: true
ssh_keys:
  ecdsa_private: |
    -----BEGIN
    uvw
    -----END
  ecdsa_public: ecdsa-sha2-nistp256 CCCC
  ed25519_private: |
    -----BEGIN
    xyz
    -----END
  ed25519_public: ssh-ed25519 BBBB
ssh_pwauth: false
users:
- gecos: Administrator
  groups:
  - adm
  - systemd-journal
  lock_passwd: true
  name: admin
  primary_group: admin
  shell: /bin/bash
  ssh_authorized_keys:
  - ssh-ed25519 AAAA op
  sudo: ALL=(ALL) NOPASSWD:ALL
`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Error(diff)
	}
	if _, err := userData(Spec{Name: "x"}, launchKeys{}); err == nil {
		t.Error("a machine nobody can log in to")
	}
}

// TestBootCommand checks that cloud-init gets the command, that the first host key can still be read from
// user data with it, and that their length is known before the launch.
func TestBootCommand(t *testing.T) {
	for _, length := range []int{0, 9 << 10, 16 << 10} {
		command := strings.Repeat("x", length)
		spec := Spec{Name: "worker-0", User: "admin", AuthorizedKeys: []string{"ssh-ed25519 AAAA op"}, BootCommand: command}
		keys, err := newLaunchKeys(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		body, err := userData(spec, keys)
		if n, foretold := spec.UserDataBytes(rand.Reader); err != nil || foretold != nil || n != len(body) || (n > MaxUserData) != (length == 16<<10) {
			t.Errorf("%d bytes of user data (%v), foretold were %d (%v)", len(body), err, n, foretold)
		}
		var parsed cloudInit
		if err := yaml.Unmarshal(body, &parsed); err != nil || !maps.Equal(parsed.HostKeys, keys.cloudInit()) {
			t.Errorf("host keys %v: %v", parsed.HostKeys, err)
		}
		var want [][]string
		if length > 0 {
			want = [][]string{{"cloud-init-per", "instance", "k8s-from-scratch", "sh", "-c", command}}
		}
		if d := cmp.Diff(want, parsed.BootCommands); d != "" {
			t.Errorf("a command of %d bytes: %s", length, d)
		}
	}
}
