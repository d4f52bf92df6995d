package iam

import (
	"crypto/rand"
	"testing"
	"time"
)

// TestPutAgain: a user and a role that IAM's API made keep their age, and the user gets an access key once.
func TestPutAgain(t *testing.T) {
	d, err := Open(Config{AccountID: "123456789012", Region: "us-east-1", Rand: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	made, err := d.MakeUser("ada", Entity{Path: "/k8s/", Tags: map[string]string{"a": "b"}}, now)
	if err != nil || made.AccessKeyID != "" {
		t.Fatal(made, err)
	}
	first, err := d.PutUser("ada", Entity{})
	if err != nil || first.AccessKeyID == "" || first.SecretAccessKey == "" || !first.Created.Equal(now) || first.ARN != made.ARN || len(first.Tags) > 0 {
		t.Errorf("%+v, %v", first, err)
	}
	again, err := d.PutUser("ada", Entity{})
	if err != nil || again.Key != first.Key || again.Second != (Key{}) {
		t.Errorf("%+v, %v", again, err)
	}
	role, err := d.MakeRole("node", Entity{Path: "/k8s/"}, DefaultTrust("us-east-1", "123456789012"), now)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.PutRole("node", Entity{}, ""); err != nil || !r.Created.Equal(now) || r.ARN != role.ARN {
		t.Errorf("%+v, %v", r, err)
	}
}
