package component

import (
	"slices"
	"strings"
	"testing"
)

// TestIssuers: the cluster's own issuer stays accepted beside another one, flags of the user's take precedence, and what
// is on the machine is found again.
func TestIssuers(t *testing.T) {
	const own, other, third = "https://kubernetes.default.svc.cluster.local", "https://oidc.example.com", "https://third.example.com"
	for name, tt := range map[string]struct {
		issuer string
		args   Args
		want   []string
		keys   string // where a verifier finds them, by the API server's word
		found  string // as a setting
	}{
		"default":          {"", nil, []string{own}, "", ""},
		"another":          {other, nil, []string{other, own}, other + "/openid/v1/jwks", other},
		"flags":            {"", Args{issuerFlag: {own, other}}, []string{own, other}, "", ""},
		"flags beside one": {other, Args{issuerFlag: {own, other}}, []string{own, other}, other + "/openid/v1/jwks", ""},
	} {
		cp := controlPlaneSpec(t)
		cp.APIServer.Issuer, cp.APIServer.Args = tt.issuer, tt.args
		if got := cp.APIServer.Issuers(cp.Cluster); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q", name, got)
		}
		f := foundOf(must(t)(ControlPlane(cp, controllers[0])))
		args := f.args(APIServerUnit)
		if !slices.Equal(args[issuerFlag], tt.want) || args.last(keysURLFlag) != tt.keys || args.last("api-audiences") != own {
			t.Errorf("%s: %q, %q, %q", name, args[issuerFlag], args[keysURLFlag], args["api-audiences"])
		}
		if got := foundIssuer(f); got != tt.found || foundDomain(args) != "cluster.local" {
			t.Errorf("%s: found %q in domain %q", name, got, foundDomain(args))
		}
	}
	cp := controlPlaneSpec(t)
	cp.APIServer.Issuer = "http://oidc.example.com"
	if got := cp.Check().Err(); got == nil || !strings.Contains(got.Error(), "workload_identity: it must begin with https://") {
		t.Errorf("%v", got)
	}
	for name, tt := range map[string]struct {
		former, next []string
		problem      string
		says         string
	}{
		"same":            {[]string{own}, []string{own}, "", ""},
		"accepted first":  {[]string{own}, []string{own, other}, "", ""},
		"then it signs":   {[]string{own, other}, []string{other, own}, "", ""},
		"and back":        {[]string{other, own}, []string{own, other}, "", ""},
		"and goes":        {[]string{own, other}, []string{own}, "", ""},
		"none known":      {nil, []string{other, own}, "", ""},
		"at once":         {[]string{own}, []string{other, own}, "An issuer that is not accepted yet", issuerFlag + ` = ["` + own + `", "` + other + `"]`},
		"another at once": {[]string{other, own}, []string{third, own}, "An issuer that is not accepted yet", `["` + other + `", "` + own + `", "` + third + `"]`},
		"off at once":     {[]string{other, own}, []string{own}, "An issuer whose tokens are in use", `["` + own + `", "` + other + `"]`},
		"moved and gone":  {[]string{own, other}, []string{other}, "An issuer whose tokens are in use", `["` + other + `", "` + own + `"]`},
	} {
		if errs := (APIServerSpec{Args: Args{issuerFlag: tt.next}}).CheckIssuers(Cluster{}, tt.former, 1); (len(errs) > 0) != (tt.problem != "" && !slices.Contains(tt.next, tt.former[0])) {
			t.Errorf("%s, one API server: %v", name, errs.Err())
		}
		errs := APIServerSpec{Args: Args{issuerFlag: tt.next}}.CheckIssuers(Cluster{}, tt.former, 3)
		if tt.problem == "" {
			if len(errs) > 0 {
				t.Errorf("%s: %v", name, errs.Err())
			}
			continue
		}
		if len(errs) != 1 || errs[0].Problem != tt.problem || !strings.Contains(errs[0].Err.Error(), tt.says) {
			t.Errorf("%s: %v", name, errs.Err())
		}
	}
}
