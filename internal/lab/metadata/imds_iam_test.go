package metadata

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestRoleCredentials checks what an instance with a profile sees below iam.
func TestRoleCredentials(t *testing.T) {
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	role := Role{
		Name: "node", Trusted: true, AccessKeyID: "ASIA1", SecretAccessKey: "secret", Token: "token",
		Issued: since.Add(time.Minute), Expires: since.Add(6 * time.Hour),
	}
	success := map[string]string{
		"Code": "Success", "LastUpdated": "2026-05-01T12:01:00Z", "Type": "AWS-HMAC", "AccessKeyId": "ASIA1",
		"SecretAccessKey": "secret", "Token": "token", "Expiration": "2026-05-01T18:00:00Z",
	}
	untrusted := role
	untrusted.Trusted = false
	const creds = "/latest/meta-data/iam/security-credentials/"
	for _, tc := range []struct {
		name, path string
		role       Role
		want       string            // the body
		document   map[string]string // or these fields
	}{
		{"categories", "/latest/meta-data/iam/", role, "info\nsecurity-credentials/", nil},
		{"the role", creds, role, "node", nil},
		{"without a slash", strings.TrimSuffix(creds, "/"), role, "node", nil},
		{"credentials", creds + "node", role, "", success},
		{"in another version", "/2021-03-23/meta-data/iam/security-credentials/node", role, "", success},
		{"another role", creds + "admin", role, "Not Found", nil},
		{"info", "/latest/meta-data/iam/info", role, "", map[string]string{
			"Code": "Success", "LastUpdated": "2026-05-01T12:00:00Z", "InstanceProfileArn": "arn:aws:iam::123456789012:instance-profile/p", "InstanceProfileId": "AIPA1"}},
		{"a role that does not trust EC2", creds + "node", untrusted, "", map[string]string{"Code": "AssumeRoleUnauthorizedAccess", "AccessKeyId": ""}},
		{"a profile that is gone", "/latest/meta-data/iam/info", Role{}, "", map[string]string{"Code": "InstanceProfileNotFound"}},
		{"its credentials", creds, Role{}, "Not Found", nil},
	} {
		i := example()
		i.Profile = &Profile{ARN: "arn:aws:iam::123456789012:instance-profile/p", ID: "AIPA1", Since: since}
		now := time.Now()
		c := newClient(i, &now)
		c.source = source{i: i, role: tc.role}
		_, token := c.do("PUT", "/latest/api/token", ttlHeader, "60")
		status, body := c.do("GET", tc.path, tokenHeader, token)
		if tc.document == nil {
			if body != tc.want || (status == http.StatusOK) == (tc.want == "Not Found") {
				t.Errorf("%s: %d %q, want %q", tc.name, status, body, tc.want)
			}
			continue
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d %q: %v", tc.name, status, body, err)
		}
		for field, want := range tc.document {
			if got[field] != want {
				t.Errorf("%s: %s is %q, want %q", tc.name, field, got[field], want)
			}
		}
		if status, _ := c.do("GET", tc.path); status != http.StatusUnauthorized {
			t.Errorf("%s, without a token: %d", tc.name, status)
		}
		if _, list := c.do("GET", "/latest/meta-data", tokenHeader, token); !strings.Contains(list, "\niam/\n") {
			t.Errorf("the categories lack iam: %q", list)
		}
		c.source = source{i: i, err: errors.New("the disk is full")}
		if status, _ := c.do("GET", tc.path, tokenHeader, token); status != http.StatusInternalServerError {
			t.Errorf("%s, if no credentials can be issued: %d", tc.name, status)
		}
	}
}
