package aws

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Claim says who owns an object in AWS: a text that one owner keeps (for Terraform, in private
// state) and that every object of the owner has as a tag from the moment it exists.
//
// The zero Claim is the owner of objects without a claim. It matches only such objects.
type Claim struct {
	// ID is what NewClaim describes. Nobody else has used it.
	ID string `json:"claim"`
	// By is who made the claim, as the ARN of a caller of AWS; At is when, in UTC and full seconds.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`

	// Adopt takes over objects that another owner has claimed, and objects without a claim.
	Adopt bool `json:"-"`
}

// NewClaim returns a claim. Its id is "<run>-<object>": run is random, the same for every claim of one
// process, and without "-"; object is different for each of them.
func NewClaim(id, by string, at time.Time) Claim {
	return Claim{ID: id, By: tagText(by), At: at.UTC().Truncate(time.Second)}
}

// ClaimIn returns the claim that tags carry, the zero Claim if there is none.
func ClaimIn(tags map[string]string) Claim { return OwnerOf(tags).Claim }

func (c Claim) run() string {
	run, _, _ := strings.Cut(c.ID, "-")
	return run
}

// Tags returns the tags of an object with the claim.
func (c Claim) Tags() map[string]string {
	if c.ID == "" {
		return nil
	}
	out := map[string]string{TagClaim: c.ID}
	if c.By != "" {
		out[tagClaimedBy] = c.By
	}
	if !c.At.IsZero() {
		out[tagClaimedAt] = c.At.Format(time.RFC3339)
	}
	return out
}

// settledTag returns the tag that settles every claim of the process that made this one. The tag
// names that process: if it is written late, it does not settle the claim of another run that has
// taken over meanwhile.
func (c Claim) settledTag(at time.Time) map[string]string {
	return map[string]string{TagSettled: c.run() + " " + at.UTC().Format(time.RFC3339)}
}

// Owner is the owner of an object, as its tags say.
type Owner struct {
	Claim
	// Settled says that a state is known to hold the claim. A create that was interrupted never
	// settles.
	Settled bool
}

// OwnerOf returns the owner of an object with these tags.
func OwnerOf(tags map[string]string) Owner {
	h := Owner{Claim: Claim{ID: tags[TagClaim], By: tags[tagClaimedBy]}}
	h.At, _ = time.Parse(time.RFC3339, tags[tagClaimedAt])
	run, _, _ := strings.Cut(tags[TagSettled], " ")
	h.Settled = run != "" && run == h.run()
	return h
}

// Unsettled reports whether there is a claim that no state is known to hold.
func (h Owner) Unsettled() bool { return h.ID != "" && !h.Settled }

// ClaimedError says that an object belongs to another owner, or that it has no claim.
type ClaimedError struct {
	What string // "VPC vpc-0abc"
	// Owner is the owner. Its ID is empty if the object has no claim.
	Owner Claim
	// Known says that the caller owned the object once: the caller looked for it by its id, not by
	// its name.
	Known bool
	// Raced says that another create at the same time has won the object.
	Raced bool
}

func (e *ClaimedError) Error() string {
	if e.Owner.ID == "" {
		return fmt.Sprintf("%s exists already and has no claim: it belongs to another state, or to nobody", e.What)
	}
	since := ""
	if !e.Owner.At.IsZero() {
		since = " since " + e.Owner.At.Format(time.RFC3339)
	}
	return fmt.Sprintf("%s belongs to another state: claimed by %s%s (claim %s)", e.What, cmp.Or(e.Owner.By, "an unknown caller"), since, e.Owner.ID)
}

// Judge decides about an object that h owns. known says that the caller knows it by its id, and not
// only by the name of its cluster. take is set if the claim must be written first: on an object
// that an interrupted create has left, or on one to adopt. The error is a ClaimedError.
func (c Claim) Judge(what string, h Owner, known bool) (take bool, err error) {
	switch {
	case h.ID == c.ID:
		return false, nil
	case c.ID != "" && h.run() == c.run(): // another object of this very process
	case c.ID != "" && c.Adopt:
		return true, nil
	case h.ID == "" && known:
		return false, nil // it has lost its tag, which is drift
	case c.ID != "" && h.Unsettled() && !known:
		return true, nil
	}
	return false, &ClaimedError{What: what, Owner: h.Claim, Known: known}
}

// tagText returns s with only the characters that every AWS service takes in a tag's value, and not
// longer than one may be.
// https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html
func tagText(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(tagRunes, r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 256)]
}

const tagRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 +-=._:/@"
