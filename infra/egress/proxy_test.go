package egress

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		proxy Proxy
		want  string // field and problem; empty for none
	}{
		"both":             {proxy: Proxy{HTTP: "http://proxy.example.com:3128", HTTPS: "https://10.0.0.4:3129/", NoProxy: []string{".example.com", "registry.example.com:5000", "10.0.0.0/8", "fd00::/8", "10.0.0.1"}}},
		"IPv6":             {proxy: Proxy{HTTPS: "http://[fd00::4]:3128"}},
		"none":             {proxy: Proxy{NoProxy: []string{"x"}}, want: ": No proxy"},
		"SOCKS":            {proxy: Proxy{HTTP: "socks5://proxy:1080"}, want: "http: Unusable proxy"},
		"no scheme":        {proxy: Proxy{HTTPS: "proxy.example.com:3128"}, want: "https: Unusable proxy"},
		"no port":          {proxy: Proxy{HTTPS: "http://proxy.example.com"}, want: "https: Unusable proxy"},
		"a path":           {proxy: Proxy{HTTPS: "http://proxy.example.com:3128/proxy.pac"}, want: "https: Unusable proxy"},
		"a password":       {proxy: Proxy{HTTPS: "http://me:hunter2@proxy.example.com:3128"}, want: "https: A proxy with a password"},
		"port 0":           {proxy: Proxy{HTTPS: "http://proxy.example.com:0"}, want: "https: Unusable proxy"},
		"no such port":     {proxy: Proxy{HTTPS: "http://proxy.example.com:99999"}, want: "https: Unusable proxy"},
		"a zone":           {proxy: Proxy{HTTP: "http://proxy:3128", NoProxy: []string{"fe80::1%x\"\nExecStartPre=/bin/false"}}, want: "no_proxy[0]: Unusable exception"},
		"a host's port 0":  {proxy: Proxy{HTTP: "http://proxy:3128", NoProxy: []string{"a:0"}}, want: "no_proxy[0]: Unusable exception"},
		"a specifier":      {proxy: Proxy{HTTPS: "http://proxy%25.example.com:3128"}, want: "https: Unusable proxy"},
		"an exception":     {proxy: Proxy{HTTP: "http://proxy:3128", NoProxy: []string{"a", "*.example.com"}}, want: "no_proxy[1]: Unusable exception"},
		"an empty one":     {proxy: Proxy{HTTP: "http://proxy:3128", NoProxy: []string{""}}, want: "no_proxy[0]: Unusable exception"},
		"two in one":       {proxy: Proxy{HTTP: "http://proxy:3128", NoProxy: []string{"a,b"}}, want: "no_proxy[0]: Unusable exception"},
		"a quote":          {proxy: Proxy{HTTP: "http://proxy'x:3128"}, want: "http: Unusable proxy"},
		"a line, in hosts": {proxy: Proxy{HTTP: "http://proxy:3128", NoProxy: []string{"a\nb"}}, want: "no_proxy[0]: Unusable exception"},
	} {
		got := ""
		for _, e := range test.proxy.Check() {
			if got += e.Field + ": " + e.Problem; strings.Contains(e.Err.Error(), "hunter2") {
				t.Errorf("%s: the error shows the password: %s", name, e.Err)
			}
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestEnvironment reads the variables as programs in Go do.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	if got := (Proxy{}).Environment("10.0.0.0/8"); got != nil {
		t.Errorf("without a proxy: %q", got)
	}
	got := Proxy{HTTPS: "http://proxy:3128", NoProxy: []string{".example.com"}}.Environment("10.240.0.0/24", ".svc", ".example.com")
	if len(got) != 2 || !slices.IsSorted(got) {
		t.Fatalf("got %q", got)
	}
	values := map[string]string{}
	for _, v := range got {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	proxyOf := (&httpproxy.Config{HTTPSProxy: values["https_proxy"], HTTPProxy: values["http_proxy"], NoProxy: values["no_proxy"]}).ProxyFunc()
	for url, proxied := range map[string]bool{
		"https://registry.k8s.io/v2/": true, "https://example.com": true, "https://10.240.1.4": true, "http://registry.k8s.io": false,
		"https://a.example.com": false, "https://10.240.0.9:6443": false, "https://metrics.kube-system.svc": false, "https://169.254.169.254": false, "https://localhost": false,
	} {
		u, err := proxyOf(mustParse(t, url))
		if err != nil || (u != nil) != proxied {
			t.Errorf("%s goes through %v, %v", url, u, err)
		}
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
