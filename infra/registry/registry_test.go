package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// certificate returns a certificate of its own, in PEM.
func certificate(t *testing.T, name string, authority bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: authority, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

const password = "sword:fish'\"\n\\"

func shown(*url.URL) string { return "https://shown" }

// TestFiles renders two mirrors of which one has an authority and a login, and reads them back.
func TestFiles(t *testing.T) {
	ca := certificate(t, "ca", true)
	want := Registries{
		"docker.io": {
			{URL: "https://z.example.com:5000", CA: ca, User: "reader", PasswordVersion: 3, Password: password},
			{URL: "https://a.example.com/v2/hub/", CA: ca},
			{URL: "http://b.example.com"},
		},
		"*": {{URL: "http://10.0.0.1:5000"}},
	}
	if errs := want.Check("registries"); len(errs) > 0 {
		t.Fatal(errs.Err())
	}
	files, err := want.Files(shown)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || files[0].Path != "_default/hosts.toml" || files[1].Secret || files[2].Path != "docker.io/hosts.toml" || !files[2].Secret {
		t.Fatalf("the files are %v", files)
	}
	name := strings.TrimPrefix(files[1].Path, "docker.io/")
	const upstream = "server = 'https://registry-1.docker.io'\n\n[host.'https://z.example.com:5000']\ncapabilities = ['pull', 'resolve']\nca = "
	rest := "\n[host.'https://a.example.com/v2/hub']\ncapabilities = ['pull', 'resolve']\nca = '" + name + "'\noverride_path = true\n\n[host.'http://b.example.com']\ncapabilities = ['pull', 'resolve']\n"
	hidden := upstream + "'" + name + "'\n\n[host.'https://z.example.com:5000'.header]\nAuthorization = 'Basic (hidden: user reader, password version 3)'\n" + rest
	if diff := cmp.Diff(hidden, string(files[2].Content)); diff != "" {
		t.Error(diff)
	}
	filled, err := files[2].Filled()
	if err != nil {
		t.Fatal(err)
	}
	login := base64.StdEncoding.EncodeToString([]byte("reader:" + password))
	if diff := cmp.Diff(strings.ReplaceAll(hidden, "(hidden: user reader, password version 3)", login), string(filled)); diff != "" {
		t.Error(diff)
	}
	for _, f := range files {
		if strings.Contains(string(f.Text)+string(f.Content), "fish") || strings.Contains(string(f.Text), "example.com") {
			t.Errorf("%s shows something:\n%s", f.Path, f.Text)
		}
	}
	if text, err := json.Marshal(want); err != nil || strings.Contains(string(text), "fish") {
		t.Errorf("the password is in %s (%v)", text, err)
	}

	read, err := Read(map[string][]byte{files[0].Path: files[0].Content, files[1].Path: files[1].Content, files[2].Path: filled, "docker.io/backup/hosts.toml": []byte("[")})
	if err != nil {
		t.Fatal(err)
	}
	want["docker.io"][0].Password, want["docker.io"][0].PasswordVersion = "", 0
	want["docker.io"][1].URL = "https://a.example.com/v2/hub"
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("read back:\n%s", diff)
	}
	again, err := want.Files(shown)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again[2].Filled(); err == nil || !strings.Contains(err.Error(), "the password of user reader at https://z.example.com:5000 is not at hand") {
		t.Errorf("without a password: %v", err)
	}
}

// TestContentChanges: everything but the password changes what a file is made from.
func TestContentChanges(t *testing.T) {
	content := func(m ...Mirror) string {
		files, err := Registries{"quay.io": m}.Files(shown)
		if err != nil {
			t.Fatal(err)
		}
		return string(files[len(files)-1].Content)
	}
	a, b := Mirror{URL: "https://a", User: "u", Password: "1"}, Mirror{URL: "https://b"}
	first := content(a, b)
	for name, other := range map[string]string{
		"order":   content(b, a),
		"path":    content(Mirror{URL: "https://a/x", User: "u"}, b),
		"user":    content(Mirror{URL: "https://a", User: "v"}, b),
		"version": content(Mirror{URL: "https://a", User: "u", PasswordVersion: 1}, b),
		"CA":      content(Mirror{URL: "https://a", User: "u", CA: "x"}, b),
	} {
		if other == first {
			t.Errorf("another %s gives the same", name)
		}
	}
	if content(Mirror{URL: "https://a", User: "u", Password: "2"}, b) != first {
		t.Error("a password is in what is shown")
	}
}

func TestCheck(t *testing.T) {
	ca, leaf := certificate(t, "ca", true), certificate(t, "leaf", false)
	many := make([]Mirror, MaxMirrors+1)
	for name, tt := range map[string]struct {
		registries Registries
		want       string
	}{
		"path":            {Registries{"quay.io/x": nil}, `registries["quay.io/x"]: "quay.io/x" is not a registry`},
		"URL as a name":   {Registries{"https://quay.io": nil}, "is not a registry"},
		"line break":      {Registries{"quay.io\n": nil}, "is not a registry"},
		"default":         {Registries{"_default": nil}, `write "*"`},
		"Docker Hub":      {Registries{"registry-1.docker.io": nil}, "write docker.io"},
		"twice":           {Registries{"Quay.io": nil, "quay.io": nil}, `"Quay.io" and "quay.io" are the same host`},
		"many":            {Registries{"quay.io": many}, `registries["quay.io"].mirrors: 11 mirrors; a registry may have 10`},
		"no scheme":       {Registries{"quay.io": {{URL: "m:5000"}}}, `registries["quay.io"].mirrors[0].url: it is not an http or https URL`},
		"other scheme":    {Registries{"quay.io": {{URL: "ftp://m"}}}, "not an http or https URL"},
		"bad host":        {Registries{"quay.io": {{URL: "https://m'x"}}}, "not an http or https URL"},
		"login in URL":    {Registries{"quay.io": {{URL: "https://u:p@m"}}}, "set user and password_wo"},
		"query":           {Registries{"quay.io": {{URL: "https://m/?x=1"}}}, "neither a query nor a fragment"},
		"fragment":        {Registries{"quay.io": {{URL: "https://m/#"}}}, "neither a query nor a fragment"},
		"mirror twice":    {Registries{"quay.io": {{URL: "https://m"}, {URL: "https://m/"}}}, `mirrors[1].url: https://m is a mirror of this registry already`},
		"no PEM":          {Registries{"quay.io": {{URL: "https://m", CA: "x"}}}, "mirrors[0].ca_pem: it has no certificate in PEM"},
		"cut off":         {Registries{"quay.io": {{URL: "https://m", CA: ca + ca[:80]}}}, "what follows certificate 1 is not PEM"},
		"leaf":            {Registries{"quay.io": {{URL: "https://m", CA: ca + leaf}}}, "certificate 2 (CN=leaf) is not the certificate of an authority"},
		"key":             {Registries{"quay.io": {{URL: "https://m", CA: strings.ReplaceAll(ca, "CERTIFICATE", "PRIVATE KEY")}}}, "block 1 is a PRIVATE KEY"},
		"broken":          {Registries{"quay.io": {{URL: "https://m", CA: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}}, "certificate 1: x509"},
		"CA without TLS":  {Registries{"quay.io": {{URL: "http://m", CA: ca}}}, "mirrors[0].ca_pem: A mirror with http has no certificate"},
		"login in plain":  {Registries{"quay.io": {{URL: "http://m", User: "u"}}}, "mirrors[0].user: With http, everybody"},
		"colon in a user": {Registries{"quay.io": {{URL: "https://m", User: "a:b"}}}, `mirrors[0].user: "a:b" has a colon`},
	} {
		errs := tt.registries.Check("registries")
		if err := errs.Err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, wanted %q", name, err, tt.want)
		}
		if len(errs) > 1 {
			t.Errorf("%s: %d errors: %v", name, len(errs), errs.Err())
		}
	}
	fine := Registries{"*": {{URL: "http://m"}, {URL: "https://m", CA: ca + "\n" + ca, User: "u@example.com"}, {}}, "registry.example.com:5000": {{URL: "https://m/x/y"}}}
	if err := fine.Check("registries").Err(); err != nil {
		t.Error(err)
	}
}
