package aws

import (
	"maps"
	"testing"
	"time"
)

// TestJudge goes through everything that a claim can find.
func TestJudge(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	mine, sibling, other := NewClaim("a-1", "me", at), NewClaim("a-2", "me", at), NewClaim("b-1", "you", at)
	adopting := mine
	adopting.Adopt = true
	settled := func(c Claim) map[string]string {
		out := c.Tags()
		maps.Copy(out, c.settledTag(at))
		return out
	}
	// Settled late by its first owner, after another has taken it over.
	late := other.Tags()
	maps.Copy(late, sibling.settledTag(at))
	for _, tt := range []struct {
		name  string
		claim Claim
		tags  map[string]string
		known bool
		want  string // "own", "take" or "refuse"
	}{
		{"its own", mine, settled(mine), false, "own"},
		{"left by an interrupted create", mine, other.Tags(), false, "take"},
		{"the same, settled late by a third one", mine, late, false, "take"},
		{"taken over meanwhile", mine, other.Tags(), true, "refuse"},
		{"another's", mine, settled(other), false, "refuse"},
		{"of another object of this process", mine, sibling.Tags(), false, "refuse"},
		{"the same, to be adopted", adopting, sibling.Tags(), false, "refuse"},
		{"without a claim", mine, nil, false, "refuse"},
		{"a tag lost", mine, nil, true, "own"},
		{"another state's, to be adopted", adopting, settled(other), false, "take"},
		{"without a claim, to be adopted", adopting, nil, false, "take"},
		{"without claims on both sides", Claim{}, nil, false, "own"},
		{"claimed, for somebody without claims", Claim{}, other.Tags(), false, "refuse"},
	} {
		take, err := tt.claim.Judge("VPC vpc-1", OwnerOf(tt.tags), tt.known)
		got := map[bool]string{true: "take", false: "own"}[take]
		if err != nil {
			got = "refuse"
		}
		if got != tt.want || err != nil && !IsClaimed(err) {
			t.Errorf("%s: %s (%v), wanted %s", tt.name, got, err, tt.want)
		}
	}
	_, err := mine.Judge("VPC vpc-1", OwnerOf(settled(other)), false)
	if want := "VPC vpc-1 belongs to another state: claimed by you since 2026-11-22T10:00:00Z (claim b-1)"; err.Error() != want {
		t.Errorf("%q, wanted %q", err, want)
	}
}

func TestTagText(t *testing.T) {
	if got, want := tagText("arn:aws:sts::1:assumed-role/Admin/a,b"), "arn:aws:sts::1:assumed-role/Admin/a_b"; got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}
